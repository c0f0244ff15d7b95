"""Makes, cancels and fetches timers of the service, by a client that was generated from its OpenAPI document."""

import sys

from tourbillond_client import Client
from tourbillond_client.api.claims import ack, claim
from tourbillond_client.api.timers import cancel_timer, put_timer
from tourbillond_client.models import Callback, ClaimRequest, NewTimer, Pull

# With tokens: AuthenticatedClient(base_url, token=open("shop.token").read().strip(), ...)
client = Client(sys.argv[1], raise_on_unexpected_status=True)

callback = Callback(url="https://example.com/expire", json={"order": 17})
placed = put_timer.sync("default", "order-17", client=client, body=NewTimer(callback=callback, delay_ms=3_600_000))
print(placed.outcome)
cancelled = cancel_timer.sync("default", "order-17", client=client)
print(cancelled.result)

# A timer for a queue, which this program fetches itself when it is due.
pull = Pull(queue="printer", body="order 18")
put_timer.sync("default", "order-18", client=client, body=NewTimer(pull=pull, delay_ms=100))
fetched = claim.sync("default", "printer", client=client, body=ClaimRequest(wait_ms=20_000))
for timer in fetched.claims:
    print(timer.key, timer.body)
    ack.sync_detailed("default", timer.claim, client=client)
