"""The only SQL. A store function is an `async def` over a transaction: one text, two databases."""
