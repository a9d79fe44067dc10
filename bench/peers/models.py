"""The sizes of named models, for the peers: FAMILY:LAYERS:WIDTH:HEADS:VOCABULARY[:GROUPS:INNER]."""
MODELS = {"gpt2-124m": "gpt2:12:768:12:50257", "gpt2-350m": "gpt2:24:1024:16:50257", "llama-134m": "llama:12:768:12:32000",
          "gpt2-1.5b": "gpt2:48:1600:25:50257", "llama-1.1b": "llama:22:2048:32:32000:4:5632",
          "llama-3b": "llama:28:3072:24:32000:8:8192", "mistral-7b": "llama:32:4096:32:32000:8:14336"}
