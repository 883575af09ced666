"""Reading the exports and session files of other products. Each format is a module; `formats` lists them."""
