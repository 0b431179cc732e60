"""Link prediction shared out over the ranks of torch.distributed: everything with an entity axis is cut along it.

Rank p of W owns the rows [p C, min((p + 1) C, N)) of all entity tables, C = ceil(N / W). Relations, filters and the
decoder are on every rank. After `loss.backward()` the gradient of a rank's rows is whole, and that of everything else
is a part: `ShardedStep` adds the parts up. Every rank calls the same methods in the same order, and every rank has the
same loss, ranks, metrics and answers, those of one process:

    world = World()                                           # after init_process_group; alone without one
    with randomness(config.training.seed, device):            # the same seed on every rank
        task = build_shard(config, data, device, world)       # of compgcn.run.build; a Task of compgcn.train.loop
        optimise(task, config.training, store, notify, make=sharded_step)
    task.ranks("test")                                        # filtered ranks of all triples, on every rank
    encoded = task.encode()                                   # a rank's rows of the entity vectors, all relations
    scores = task.score(encoded, s, r)                        # of a rank's slice of the entities
    values, entities = task.candidates.best(scores, 10)       # the best answers of all slices, on every rank
    ENTITY_ROWS                                               # the names of the weights that are a rank's rows
    world.sent                                                # bytes that this rank has sent, by kind

`compgcn.shards.rows` lays out rows and moves them, `compgcn.shards.graph` shares out messages,
`compgcn.shards.link_prediction` is the task, and `compgcn.shards.step` the update. `SUPPORTED` says what of a config
works, and where the numbers are not those of one process.
"""
