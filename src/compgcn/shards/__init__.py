"""Link prediction shared out over the ranks of torch.distributed: everything with an entity axis is cut along it.

Rank p of W owns the rows [p C, min((p + 1) C, N)) of all entity tables, C = ceil(N / W). Relations, filters and the
decoder are on every rank. After `loss.backward()` the gradient of a rank's rows is whole, and that of everything else
is a part: `ShardedStep` adds the parts up. Every rank calls the same methods in the same order, and every rank has the
same loss, ranks, metrics and answers, those of one process. `build_shard` of `compgcn.run.build` makes the task.

`compgcn.shards.rows` lays out rows and moves them, `compgcn.shards.graph` shares out messages,
`compgcn.shards.link_prediction` is the task, and `compgcn.shards.step` the update. `SUPPORTED` says what of a config
works, and where the numbers are not those of one process.
"""
