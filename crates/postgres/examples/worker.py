"""Closes orders whose timeouts are in a queue, each once, with psycopg 3: python worker.py DATABASE SERVICE QUEUE"""

import json
import sys
import urllib.error
import urllib.request

import psycopg


def post(url, body):
    """Sends a request to the service. Returns the status and the body of the answer."""
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as answer:
        return answer.code, answer.read()


def fetch(service, queue):
    """Fetches a due timer from a queue. Waits up to 20 seconds for one."""
    status, body = post(f"{service}/v1/namespaces/default/queues/{queue}/claims", {"max": 1, "wait_ms": 20000})
    if status != 200:
        raise RuntimeError(body)
    return json.loads(body)["claims"]


def close(connection, claim):
    """Closes an order and ends the delivery of its timeout in one transaction. Returns whether both were done."""
    number = json.loads(claim["body"])["order"]
    try:
        with connection.transaction():
            connection.execute("UPDATE orders SET state = 'closed' WHERE number = %s AND state = 'open'", [number])
            connection.execute("SELECT tourbillon.done(%s, %s)", [claim["id"], claim["claim"]])
        return True
    except psycopg.Error as error:
        if error.sqlstate != "TB001":
            raise
        # The claim has expired, and another receiver may have the timer. The order is as it was.
        return False


def main(database, service, queue):
    with psycopg.connect(database, autocommit=True) as connection:
        for claim in fetch(service, queue):
            print(f"{claim['key']}: {'closed' if close(connection, claim) else 'left to another receiver'}")
            # The delivery has ended, so this answers 409. It frees the receiver's place in the queue.
            post(f"{service}/v1/namespaces/default/claims/{claim['claim']}/ack", {})


main(*sys.argv[1:])
