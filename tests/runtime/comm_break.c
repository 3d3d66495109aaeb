/* A pipeline that fails, under mpirun: comm_break RANKS KIND RANK MICROBATCH [SECONDS]
 *
 *   none   runs on and on, for tests that kill or stop a process; kernels take SECONDS
 *   index, call, exit, leave, slow   the faults of chain.h, in that rank and microbatch
 *   open   that rank finds no weights
 *
 * Prints `rank R pid P` when it is open, and `right` at the end. */
#include "chain.h"

#include <stdio.h>

static const char *const kinds[] = {[FAULT_NONE] = "none", [FAULT_INDEX] = "index", [FAULT_CALL] = "call",
                                    [FAULT_EXIT] = "exit", [FAULT_SLOW] = "slow",   [FAULT_LEAVE] = "leave"};

static int own_rank(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    return rank ? (int)strtol(rank, NULL, 10) : 0;
}

static int run_all(aprt_instance *in, const fault *f, int32_t ranks)
{
    static float y[CHAIN_MICROBATCHES * CHAIN_LENGTH];
    int status;
    chain_fault = f;
    printf("rank %d pid %d\n", own_rank(), (int)getpid());
    fflush(stdout);
    do
        status = aprt_run(in, (const void *const[]){f}, (void *const[]){y});
    while (status == APRT_OK && f->kind == FAULT_NONE);
    if (status == APRT_OK && own_rank() == 0)
        printf("%s\n", chain_right(ranks, y) ? "right" : "wrong");
    return status;
}

int main(int argc, char **argv)
{
    static chain c;
    aprt_instance *in;
    fault f = {FAULT_NONE, 0, 0, 0};
    if (argc < 5)
        return 2;
    const int32_t ranks = (int32_t)strtol(argv[1], NULL, 10);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i], argv[2]) == 0)
            f.kind = (fault_kind)i;
    f.rank = (int32_t)strtol(argv[3], NULL, 10);
    f.mb = strtol(argv[4], NULL, 10);
    f.seconds = argc > 5 ? strtod(argv[5], NULL) : 0;
    if (ranks < 1 || ranks > CHAIN_RANKS)
        return 2;
    chain_make(&c, ranks);
    if (strcmp(argv[2], "open") == 0)
        c.stage[f.rank].nparams = 1;
    c.param = (aprt_param){.port = {"w", APRT_F32, 1, {1}}, .ndims = 1, .extent = {1}, .stride = {1}, .bytes = 4};
    c.stage[f.rank].param = &c.param;
    c.stage[f.rank].param_bytes = 4;
    int status = aprt_open(&c.program, &(aprt_options){.weights = "nowhere/weights.safetensors"}, &in);
    if (status == APRT_OK)
        status = run_all(in, &f, ranks);
    if (status != APRT_OK)
        fprintf(stderr, "comm_break: %s\n", aprt_error(in));
    aprt_close(in);
    return status;
}
