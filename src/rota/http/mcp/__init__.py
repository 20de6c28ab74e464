"""The MCP server: an assistant reads Rota, and manages it if that is allowed.

The tools are routes of the API under names for assistants. Only the protocol is new."""
