"""Who is told how an execution ended: webhooks, commands, pings."""
