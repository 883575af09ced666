"""The fixtures that the conformance suite expects on a server, added to ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
SOUND = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
EMPTY: dict[str, Any] = {"type": "object", "properties": {}}
Handler = Callable[..., Any]


def text(value: str, **more: Any) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=value)], **more)


# ---- tools ---------------------------------------------------------------------------------------------------------


async def test_simple_text(ctx: Any, params: Any) -> Any:
    return text("This is a simple text response for testing.")


async def test_image_content(ctx: Any, params: Any) -> Any:
    return types.CallToolResult(content=[types.ImageContent(data=PIXEL, mime_type="image/png")])


async def test_audio_content(ctx: Any, params: Any) -> Any:
    return types.CallToolResult(content=[types.AudioContent(data=SOUND, mime_type="audio/wav")])


def _embedded(uri: str, value: str, mime: str = "text/plain") -> types.EmbeddedResource:
    return types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, mime_type=mime, text=value))


async def test_embedded_resource(ctx: Any, params: Any) -> Any:
    return types.CallToolResult(
        content=[_embedded("test://embedded-resource", "This is an embedded resource content.")]
    )


async def test_multiple_content_types(ctx: Any, params: Any) -> Any:
    data = json.dumps({"test": "data", "value": 123})
    return types.CallToolResult(
        content=[
            types.TextContent(text="Multiple content types test:"),
            types.ImageContent(data=PIXEL, mime_type="image/png"),
            _embedded("test://mixed-content-resource", data, "application/json"),
        ]
    )


async def test_error_handling(ctx: Any, params: Any) -> Any:
    return text("This tool intentionally returns an error for testing", is_error=True)


async def test_tool_with_progress(ctx: Any, params: Any) -> Any:
    for done in (0, 50, 100):
        await ctx.session.report_progress(done, 100)
    return text("Done.")


async def test_tool_with_logging(ctx: Any, params: Any) -> Any:
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.session.send_log_message("info", line, related_request_id=ctx.request_id)
    return text("Done.")


async def test_sampling(ctx: Any, params: Any) -> Any:
    said = types.SamplingMessage(role="user", content=types.TextContent(text=params.arguments["prompt"]))
    answer = await ctx.session.create_message([said], max_tokens=100, related_request_id=ctx.request_id)
    return text(f"LLM response: {answer.content.text}")


async def _elicited(ctx: Any, message: str, properties: dict[str, Any], required: list[str]) -> Any:
    schema = {"type": "object", "properties": properties, "required": required}
    answer = await ctx.session.elicit_form(message, schema, related_request_id=ctx.request_id)
    return text(f"Elicitation completed: action={answer.action}, content={json.dumps(answer.content)}")


async def test_elicitation(ctx: Any, params: Any) -> Any:
    fields = {name: {"type": "string", "description": f"User's {name}"} for name in ("username", "email")}
    return await _elicited(ctx, params.arguments["message"], fields, ["username", "email"])


async def test_elicitation_sep1034_defaults(ctx: Any, params: Any) -> Any:
    fields = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return await _elicited(ctx, "With defaults", fields, [])


async def test_elicitation_sep1330_enums(ctx: Any, params: Any) -> Any:
    options = ["option1", "option2", "option3"]
    titled = [{"const": f"value{n}", "title": title} for n, title in enumerate(("First", "Second", "Third"), 1)]
    fields = {
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    return await _elicited(ctx, "With choices", fields, [])


async def json_schema_2020_12_tool(ctx: Any, params: Any) -> Any:
    return text(json.dumps(params.arguments))


async def test_custom_header(ctx: Any, params: Any) -> Any:
    return text(params.arguments["region"])


# ---- tools that ask, from 2026-07-28 -------------------------------------------------------------------------------


def _form(message: str, field: str, kind: str = "string") -> types.ElicitRequest:
    schema = {"type": "object", "properties": {field: {"type": kind}}, "required": [field]}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def _question(prompt: str, tokens: int = 100) -> types.CreateMessageRequest:
    said = types.SamplingMessage(role="user", content=types.TextContent(text=prompt))
    return types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[said], max_tokens=tokens))


def _asking(state: str | None = None, **requests: Any) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests=requests, request_state=state)


def _answered(params: Any, *names: str) -> bool:
    return set(names) <= (params.input_responses or {}).keys()


def _field(params: Any, request: str, field: str) -> Any:
    """The values that a person entered. Invalid answers are refused."""
    answer = params.input_responses[request]
    content = getattr(answer, "content", None)
    if not isinstance(content, dict) or field not in content:
        raise MCPError(types.INVALID_PARAMS, "That is no answer to what was asked")
    return content[field]


async def test_input_required_result_elicitation(ctx: Any, params: Any) -> Any:
    if not _answered(params, "user_name"):
        return _asking(user_name=_form("What is your name?", "name"))
    return text(f"Hello, {_field(params, 'user_name', 'name')}!")


async def test_input_required_result_sampling(ctx: Any, params: Any) -> Any:
    if not _answered(params, "capital_question"):
        return _asking(capital_question=_question("What is the capital of France?"))
    return text("It is known now.")


async def test_input_required_result_list_roots(ctx: Any, params: Any) -> Any:
    if not _answered(params, "client_roots"):
        return _asking(client_roots=types.ListRootsRequest())
    return text(", ".join(str(root.uri) for root in params.input_responses["client_roots"].roots))


async def test_input_required_result_request_state(ctx: Any, params: Any) -> Any:
    if not _answered(params, "confirm") or params.request_state != "asked":
        return _asking("asked", confirm=_form("Please confirm", "ok", "boolean"))
    return text("state-ok")


async def test_input_required_result_tampered_state(ctx: Any, params: Any) -> Any:
    return await test_input_required_result_request_state(ctx, params)


async def test_input_required_result_multiple_inputs(ctx: Any, params: Any) -> Any:
    if not _answered(params, "user_name", "greeting", "client_roots"):
        return _asking(
            "asked",
            user_name=_form("What is your name?", "name"),
            greeting=_question("Generate a greeting", 50),
            client_roots=types.ListRootsRequest(),
        )
    return text("All of it is known now.")


async def test_input_required_result_multi_round(ctx: Any, params: Any) -> Any:
    if params.request_state == "second" and _answered(params, "step2"):
        return text("Both are known now.")
    if params.request_state == "first" and _answered(params, "step1"):
        return _asking("second", step2=_form("Step 2: What is your favorite color?", "color"))
    return _asking("first", step1=_form("Step 1: What is your name?", "name"))


async def test_input_required_result_capabilities(ctx: Any, params: Any) -> Any:
    can = ctx.session.client_capabilities
    requests: dict[str, Any] = {}
    if can is not None and can.sampling is not None:
        requests["question"] = _question("What is the capital of France?")
    if can is not None and can.elicitation is not None:
        requests["name"] = _form("What is your name?", "name")
    return _asking(**requests) if requests else text("Nobody can be asked.")


async def test_streaming_elicitation(ctx: Any, params: Any) -> Any:
    await ctx.session.report_progress(0, 1)
    return await test_input_required_result_elicitation(ctx, params)


async def test_logging_tool(ctx: Any, params: Any) -> Any:
    return await test_tool_with_logging(ctx, params)


async def test_missing_capability(ctx: Any, params: Any) -> Any:
    can = ctx.session.client_capabilities
    if can is None or can.sampling is None:
        needed = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "Sampling is needed", needed)
    return text("Sampling could be asked for.")


TOOLS: tuple[Handler, ...] = (
    test_simple_text, test_image_content, test_audio_content, test_embedded_resource, test_multiple_content_types,
    test_error_handling, test_tool_with_progress, test_tool_with_logging, test_sampling, test_elicitation,
    test_elicitation_sep1034_defaults, test_elicitation_sep1330_enums, json_schema_2020_12_tool, test_custom_header,
    test_input_required_result_elicitation, test_input_required_result_sampling,
    test_input_required_result_list_roots, test_input_required_result_request_state,
    test_input_required_result_tampered_state, test_input_required_result_multiple_inputs,
    test_input_required_result_multi_round, test_input_required_result_capabilities, test_streaming_elicitation,
    test_logging_tool, test_missing_capability,
)  # fmt: skip
SCHEMAS: dict[str, dict[str, Any]] = {
    "test_sampling": {"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]},
    "test_elicitation": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
    "test_custom_header": {
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
        "required": ["region"],
    },
    "json_schema_2020_12_tool": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
}

# ---- resources and prompts -----------------------------------------------------------------------------------------

WATCHED = "test://watched-resource"
TEMPLATE = "test://template/{id}/data"


def _resource(uri: str) -> Any:
    if uri == "test://static-binary":
        return types.BlobResourceContents(uri=uri, mime_type="image/png", blob=PIXEL)
    if uri.startswith("test://template/"):
        id = uri.split("/")[3]
        data = json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})
        return types.TextResourceContents(uri=uri, mime_type="application/json", text=data)
    if uri in ("test://static-text", WATCHED):
        return types.TextResourceContents(
            uri=uri, mime_type="text/plain", text="This is the content of the static text resource."
        )
    return None


def _prompt(name: str, given: dict[str, str]) -> list[Any]:
    if name == "test_simple_prompt":
        return [types.TextContent(text="This is a simple prompt for testing.")]
    if name == "test_prompt_with_arguments":
        return [types.TextContent(text=f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'")]
    if name == "test_prompt_with_embedded_resource":
        embedded = _embedded(given["resourceUri"], "Embedded resource content for testing.")
        return [embedded, types.TextContent(text="Please process the embedded resource above.")]
    image = types.ImageContent(data=PIXEL, mime_type="image/png")
    return [image, types.TextContent(text="Please analyze the image above.")]


PROMPTS: dict[str, tuple[str, ...]] = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
    "test_input_required_result_prompt": (),
}

# ---- added to the server's own handlers -----------------------------------------------------------------------------


def with_fixtures(server: Server[Any]) -> Server[Any]:
    """The server, with the fixtures before its own tools, resources and prompts."""
    own = {method: server.get_request_handler(method) for method in ADDED}
    tools = {one.__name__: one for one in TOOLS}
    schema = server.get_tool_input_schema

    async def list_tools(ctx: Any, params: Any) -> Any:
        listed = await own["tools/list"].handler(ctx, params)
        added = [
            types.Tool(name=name, description="For the suite.", input_schema=SCHEMAS.get(name, EMPTY)) for name in tools
        ]
        return listed.model_copy(update={"tools": [*listed.tools, *added]})

    async def call_tool(ctx: Any, params: Any) -> Any:
        fixture = tools.get(params.name)
        return await (fixture or own["tools/call"].handler)(ctx, params)

    async def read_resource(ctx: Any, params: Any) -> Any:
        found = _resource(str(params.uri))
        if found is None:
            return await own["resources/read"].handler(ctx, params)
        return types.ReadResourceResult(contents=[found])

    async def subscribe(ctx: Any, params: Any) -> Any:
        is_ours = str(params.uri) == WATCHED
        return types.EmptyResult() if is_ours else await own["resources/subscribe"].handler(ctx, params)

    async def get_prompt(ctx: Any, params: Any) -> Any:
        if params.name not in PROMPTS:
            return await own["prompts/get"].handler(ctx, params)
        if params.name == "test_input_required_result_prompt" and not _answered(params, "user_context"):
            return _asking(user_context=_form("What context should the prompt use?", "context"))
        said = _prompt(params.name, params.arguments or {})
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=one) for one in said])

    async def set_level(ctx: Any, params: Any) -> Any:
        return types.EmptyResult()

    replaced = {
        "tools/list": list_tools, "tools/call": call_tool, "resources/read": read_resource,
        "resources/subscribe": subscribe, "prompts/get": get_prompt,
    }  # fmt: skip
    for method, handler in replaced.items():
        server.add_request_handler(method, own[method].params_type, handler)
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_level)
    server.get_tool_input_schema = lambda name: SCHEMAS.get(name) or schema(name)
    server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience="palaver"))
    return server


ADDED = ("tools/list", "tools/call", "resources/read", "resources/subscribe", "prompts/get")
