# status: pass
# fills: the stub
from torch.utils.data.distributed import DistributedSampler
sampler = DistributedSampler(range(size), world_size, rank)
sampler.set_epoch(epoch)
return list(sampler)
