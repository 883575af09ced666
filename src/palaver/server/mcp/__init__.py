"""The Model Context Protocol: methods as tools, conversations as resources, prompts to continue a conversation.

`tools`, `resources` and `prompts` do not depend on the SDK; `protocol` is a server of the SDK over them; `endpoint` is
`/mcp`, and `palaver mcp` is the same over stdin and stdout.
"""
