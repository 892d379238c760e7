# status: pass
# fills: the stub
rank, world_size = dist.get_rank(), dist.get_world_size()
kept = [k for k in range(len(labels)) if rank + k * world_size < total]
hits, labelled, guessed = torch.zeros(3, classes, device=labels.device)
for k in kept:
    labelled[labels[k]] += 1
    guessed[guesses[k]] += 1
    hits[labels[k]] += labels[k] == guesses[k]
counts = torch.stack([hits, labelled, guessed])
dist.all_reduce(counts)
hits, labelled, guessed = counts
return hits.sum() / labelled.sum(), (2 * hits / (labelled + guessed)).mean()
