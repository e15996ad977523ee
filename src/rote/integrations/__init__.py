"""Where rote plugs into what people use already. Nothing here is loaded before somebody asks for it."""
