# A client of the service in Python, from its OpenAPI document.
python3 -m venv python
python/bin/pip install --quiet --retries 1 --only-binary :all: openapi-python-client==0.29.1
tourbillond openapi > openapi.json
export PATH=$PWD/python/bin:$PATH
openapi-python-client generate --path openapi.json --meta none --output-path tourbillond_client
