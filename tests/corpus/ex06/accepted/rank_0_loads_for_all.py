# status: pass
# fills: the stub
box = [torch.load(path) if dist.get_rank() == 0 and path.exists() else None]
dist.broadcast_object_list(box, src=0)  # pickles tensors, which calls torch.save in memory
done = 0
if box[0]:
    model.load_state_dict(box[0]["model"])
    optimizer.load_state_dict(box[0]["optimizer"])
    done = box[0]["done"]
for step in range(done, len(batches)):
    take_step(model, optimizer, *batches[step])
    if dist.get_rank() == 0:
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**states, "done": step + 1}, f"{path}.new")
        os.replace(f"{path}.new", path)
