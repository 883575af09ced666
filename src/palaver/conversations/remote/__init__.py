"""A store on a Palaver server: the same methods over HTTP. `palaver.open("https://…", key=…)` makes one."""
