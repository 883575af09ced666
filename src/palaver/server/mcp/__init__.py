"""The Model Context Protocol: the verbs as tools, conversations as resources, prompts to go on with one.

`tools`, `resources`, `prompts` translate and know nothing of the SDK; `protocol` is a server of the SDK over them;
`endpoint` is `/mcp`, and `palaver mcp` is the same over stdin and stdout.
"""
