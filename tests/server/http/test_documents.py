"""The OpenAPI document and its HTML page."""

import json
import re
from html.parser import HTMLParser
from typing import Any

import jsonschema
import jsonschema_rs
import msgspec
import pytest
import schemathesis

from tests.server.http.http_relay import HttpRelay
from waypost import AccessRule, Budget
from waypost.policy.errors import InvalidSettings
from waypost.policy.settings import merge_settings, to_config_document
from waypost.server.context import SERVED_SETTINGS
from waypost.server.http.contract import NoParameters
from waypost.server.http.openapi import make_document
from waypost.server.http.operations import OPERATIONS
from waypost.wire.payloads import Attachment, Performative, StandardPayload

MESSAGE_SCHEMAS = {
    "Performative",
    "SignalType",
    "ChannelType",
    "Budget",
    "Envelope",
    "Attachment",
    "ResponseContext",
    "StandardPayload",
    "Signal",
    "AccessRule",
}
OPERATION_IDS = [one.name for one in OPERATIONS]


def references(part: Any) -> set[str]:
    """Yield every schema reference."""
    if isinstance(part, dict):
        found = {part["$ref"]} if "$ref" in part else set()
        return found.union(*(references(one) for one in part.values()))
    if isinstance(part, list):
        return set().union(*(references(one) for one in part))
    return set()


def test_every_operation_is_described() -> None:
    paths = make_document(OPERATIONS)["paths"]
    described = {(m.upper(), path) for path, methods in paths.items() for m in methods}
    assert described == {(one.method, one.path) for one in OPERATIONS}


def test_names_of_operations_are_unique() -> None:
    assert len(set(OPERATION_IDS)) == len(OPERATION_IDS)


def test_every_schema_is_defined_and_used_or_a_message_schema() -> None:
    document = make_document(OPERATIONS)
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    messages = {f"#/components/schemas/{name}" for name in MESSAGE_SCHEMAS}
    assert references(document) <= known
    assert known - references(document) <= messages <= known


def test_the_document_is_valid_openapi() -> None:
    document = make_document(OPERATIONS)
    schemathesis.openapi.from_dict(document).validate()
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_a_document_that_is_no_openapi_is_noticed() -> None:
    document = make_document(OPERATIONS)
    del document["paths"]["/v1/config"]["put"]["requestBody"]["content"]
    with pytest.raises(jsonschema_rs.ValidationError, match="content"):
        schemathesis.openapi.from_dict(document).validate()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("StandardPayload", StandardPayload(content="hi", performative=Performative.QUERY)),
        ("Attachment", Attachment(path="/a", filename="a", mime_type="text/plain", size=3)),
        ("Budget", Budget(ttl=5)),
        ("AccessRule", AccessRule("a.*", ">", "deny", -5)),
    ],
)
def test_a_message_schema_accepts_its_values_and_no_others(kind: str, value: object) -> None:
    check = validator(kind)
    assert check.is_valid(msgspec.json.decode(msgspec.json.encode(value)))
    assert not check.is_valid({"something": "else"})


# The shape of config.json


def validator(kind: str) -> Any:
    """Return a validator for a schema of the document."""
    document = make_document(OPERATIONS)
    return jsonschema.Draft202012Validator(
        {"$ref": f"#/components/schemas/{kind}", "components": document["components"]}
    )


def body_of_put_config() -> str:
    """Return the name of the schema of a `config.json`."""
    body = make_document(OPERATIONS)["paths"]["/v1/config"]["put"]["requestBody"]
    return str(body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2])


def defaults(kind: str) -> dict[str, Any]:
    """Return the defaults of all settings, as the schema has them."""
    schemas = make_document(OPERATIONS)["components"]["schemas"]
    found = {}
    for name, schema in schemas[kind]["properties"].items():
        nested = [one["$ref"] for one in (schema, *schema.get("anyOf", ())) if "$ref" in one]
        found[name] = defaults(nested[0].rpartition("/")[2]) if nested else schema["default"]
    return found


def test_the_schema_of_the_settings_has_the_defaults_of_a_served_relay() -> None:
    assert defaults(body_of_put_config()) == to_config_document(SERVED_SETTINGS)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"maxHops": 3, "reliability": {"rateLimit": {"maxPerWindow": 5}}},
        {"qos": {"tier1": {"maxBytes": 18446744073709551615}, "strangers": None}},
        {"names": {"reserved": ["agent.ops.>"]}, "storage": "journal"},
        to_config_document(SERVED_SETTINGS),
    ],
)
def test_the_schema_accepts_a_valid_config(document: Any) -> None:
    merge_settings(SERVED_SETTINGS, json.dumps(document).encode())
    validator(body_of_put_config()).validate(document)


@pytest.mark.parametrize(
    "document",
    [
        {"maxHops": 0},
        {"maxHops": "5"},
        {"storage": "floppy"},
        {"rateLimit": {"maxPerWindow": 5}},
        {"reliability": {"rateLimit": {"perSenderOverrides": {"a": 0}}}},
        {"reliability": {"retries": {}}},
        {"reliability": {"backpressure": {"pressureWarningAt": 1.5}}},
        {"qos": {"tier2": {"maxBytes": -1}}},
        {"qos": {"tier4": {}}},
        {"maxHopps": 5},
    ],
)
def test_the_schema_rejects_an_invalid_config(document: Any) -> None:
    with pytest.raises(InvalidSettings):
        merge_settings(SERVED_SETTINGS, json.dumps(document).encode())
    assert not validator(body_of_put_config()).is_valid(document)


async def test_settings_in_force_have_the_documented_shape(served: HttpRelay) -> None:
    answer = await served.call("GET", "/v1/config", token=served.operator)
    state = make_document(OPERATIONS)["components"]["schemas"]["ConfigState"]
    assert state["properties"]["settings"]["$ref"].endswith(f"/{body_of_put_config()}")
    validator("ConfigState").validate(answer.json())


@pytest.mark.parametrize("operation", OPERATIONS, ids=OPERATION_IDS)
def test_the_parameters_of_a_path_are_fields_of_its_struct(operation: Any) -> None:
    fields = set(operation.parameters.__struct_encode_fields__)
    assert set(operation.path_names) <= fields
    assert operation.method != "GET" or operation.body.read is None
    assert operation.parameters is NoParameters or fields


async def test_the_document_is_served(served: HttpRelay) -> None:
    answered = await served.call("GET", "/openapi.json")
    assert answered.json() == json.loads(json.dumps(make_document(OPERATIONS)))
    assert answered.json()["openapi"] == "3.1.0"


class Links(HTMLParser):
    """The links and the ids of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.places: set[str] = set()
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name in ("href", "src", "action"):
                self.targets.add(value or "")
            elif name == "id":
                self.places.add(value or "")


async def test_the_page_loads_no_other_resource(served: HttpRelay) -> None:
    page = await served.call("GET", "/docs")
    links = Links()
    links.feed(page.text)
    outside = {target for target in links.targets if not target.startswith("#")}
    assert outside == {"/openapi.json"}
    assert not links.tags & {"script", "link", "img", "iframe"}
    assert not re.search(r"url\(|@import", page.text)
    assert "default-src 'none'" in page.headers["content-security-policy"]


async def test_every_link_on_the_page_has_a_target(served: HttpRelay) -> None:
    links = Links()
    links.feed((await served.call("GET", "/docs")).text)
    assert {target[1:] for target in links.targets if target.startswith("#")} <= links.places
    assert set(OPERATION_IDS) <= links.places
