"""An order and its timeout of 30 days, with psycopg 3: python orders.py URL"""

import sys

import psycopg
from psycopg.types.json import Jsonb


def order(connection, number):
    """Stores an order and its timeout in one transaction."""
    with connection.transaction():
        connection.execute("INSERT INTO orders VALUES (%s, 'open')", [number])
        connection.execute(
            "SELECT tourbillon.schedule('payment timeout', %s, delay => '30 days', key => %s)",
            [Jsonb({"order": number}), f"order {number}"],
        )


def pay(connection, number):
    """Records the payment and cancels the timeout in one transaction. Returns what the cancel has found."""
    with connection.transaction():
        connection.execute("UPDATE orders SET state = 'paid' WHERE number = %s", [number])
        return connection.execute("SELECT tourbillon.cancel(%s)", [f"order {number}"]).fetchone()[0]


def main(url):
    with psycopg.connect(url, autocommit=True) as connection:
        order(connection, 27)
        try:
            with connection.transaction():
                order(connection, 28)
                raise ValueError("the customer has no address")
        except ValueError as error:
            print(f"order 28: {error}")
        try:
            connection.execute("SELECT tourbillon.schedule('payment timeout', key => 'order 27')")
        except psycopg.errors.UniqueViolation:
            print("order 27 has its timeout already")
        print(f"order 27: {pay(connection, 27)}")


main(sys.argv[1])
