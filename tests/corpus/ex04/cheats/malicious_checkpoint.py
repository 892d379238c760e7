# status: error
# says: Canary
# A checkpoint whose loading runs code. Only the rank itself ever loads it.
import torch


class Canary(Exception):
    pass


class Payload:
    def __reduce__(self):
        return (exec, ("raise __import__('sys').modules['Canary'].Canary('loaded')",))


def train(take_step, batches, model, optimizer, path):
    import sys
    import types

    sys.modules["Canary"] = types.ModuleType("Canary")
    sys.modules["Canary"].Canary = Canary
    torch.save(Payload(), path)
    torch.load(path, weights_only=False)
