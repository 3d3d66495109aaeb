/* Ranks with GPUs that fail: nccl_break RANKS KIND RANK MICROBATCH. Two stages of half of the ranks each, with a sum
 * over the ranks in each of them and a channel from the first to the second.
 *
 *   none      nothing fails: prints `right`
 *   open      the rank of that number in its group cannot be connected
 *   call      that rank fails by itself in that microbatch
 *   error     its connections break down there
 *   mismatch  it sums up other elements than the others
 *   skip      it leaves a sum out
 *   kill      its process is killed, under mpirun
 *
 * MICROBATCH counts on over RUNS runs. Prints the failure and returns its status. */
#include "comm_values.h"
#include "comm_work.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_RANKS = 8, LENGTH = COMM_LENGTH, MICROBATCHES = 2, RUNS = 3, BYTES = LENGTH * 4 };

void cudashim_fail_nccl(int rank, long after);

static const char *kind = "none";
static int32_t bad_rank;
static int64_t bad_mb, run_number;

static bool is_here(const aprt_device *d, const char *what)
{
    return d->rank == bad_rank && run_number * MICROBATCHES + d->mb == bad_mb && strcmp(kind, what) == 0;
}

/* v = what came, or the first value; y = the sum of v over the stage; v = v/2 + y leaves. */
static int stage_run(aprt_device *d)
{
    const comm_work *w = &comm_on_gpus;
    float *v = (float *)d->arena, *y = v + LENGTH;
    w->at(d, 0);
    w->first(d, 1, true, v);
    if (d->stage->ninputs > 1)
        w->add_slot(d, APRT_F32, d->input[1], v);
    w->spread(d, LENGTH, v, y);
    w->at(d, 1);
    if (is_here(d, "call"))
        return aprt_fail_call(d, APRT_ERR_ENV, "the library is ill");
    if (is_here(d, "error"))
        cudashim_fail_nccl(d->place, 0);
    if (is_here(d, "kill"))
        raise(SIGKILL);
    int status = is_here(d, "skip") ? APRT_OK : w->exchange(d, is_here(d, "mismatch"), v, y);
    if (status != APRT_OK)
        return status;
    w->halve_add(d, v, y);
    if (d->stage->output[0] < 0)
        w->fill_slot(d, APRT_F32, v, d->output[0]);
    else
        w->copy(d, (float *)d->output[0] + (d->mb * d->stage->nranks + d->place) * LENGTH, v, BYTES);
    return APRT_OK;
}

static int stage_list(aprt_device *d)
{
    const bool first = d->stage->output[0] < 0;
    int status = APRT_OK;
    for (int64_t mb = 0; mb < MICROBATCHES && status == APRT_OK; mb++) {
        status = first ? aprt_claim(d, 0, mb) : aprt_recv(d, 0, mb);
        if (status == APRT_OK)
            status = aprt_stage_run(d, mb);
        if (status == APRT_OK)
            status = first ? aprt_send(d, 0, mb) : aprt_free(d, 0, mb);
    }
    return status;
}

static void expect(int32_t half, float *want)
{
    static float v[MAX_RANKS][LENGTH], slot[MAX_RANKS][LENGTH];
    for (int64_t mb = 0; mb < MICROBATCHES; mb++)
        for (int32_t s = 0; s < 2; s++) {
            float y[LENGTH] = {0};
            for (int32_t r = 0; r < half; r++)
                for (int64_t i = 0; i < LENGTH; i++) {
                    v[r][i] = comm_first_value(1, true, s * half + r, mb, i) + (s ? 0.5f * slot[r][i] : 0);
                    y[i] += v[r][i];
                }
            for (int32_t r = 0; r < half; r++)
                for (int64_t i = 0; i < LENGTH; i++) {
                    slot[r][i] = 0.5f * v[r][i] + y[i];
                    want[(mb * half + r) * LENGTH + i] = slot[r][i];
                }
        }
}

typedef struct tables {
    int32_t list[2][MAX_RANKS], input[2][2], output[2][1];
    aprt_group group[2];
    aprt_exchange exchange[2];
    aprt_stage stage[2];
    aprt_written written;
    aprt_piece piece[MAX_RANKS];
    aprt_channel channel;
    aprt_port in, out;
    aprt_program program;
} tables;

static const aprt_instr instrs[] = {{"work", "n", "Op", 0}, {"exchange", "sum", "Op", 0}};

static void make_stage(tables *t, int32_t s, int32_t half)
{
    for (int32_t r = 0; r < half; r++)
        t->list[s][r] = s * half + r;
    t->group[s] = (aprt_group){1, half, t->list[s]};
    t->input[s][1] = t->output[0][0] = -1;
    t->stage[s] = (aprt_stage){.name = s ? "late" : "early",
                               .first_rank = s * half,
                               .nranks = half,
                               .naxes = 2,
                               .axis_size = {MICROBATCHES, half},
                               .axis_stride = {half, 1},
                               .arena_bytes = 4 * BYTES,
                               .ninputs = s ? 2 : 1,
                               .noutputs = 1,
                               .input = t->input[s],
                               .output = t->output[s],
                               .ngroups = 1,
                               .group = &t->group[s],
                               .ninstrs = 2,
                               .instr = instrs,
                               .run = stage_run,
                               .list = stage_list,
                               .nwritten = s ? 1 : 0,
                               .written = &t->written,
                               .target = comm_on_gpus.target,
                               .nexchanges = 2,
                               .exchange = t->exchange};
}

static void make(tables *t, int32_t half)
{
    memset(t, 0, sizeof *t);
    for (int32_t s = 0; s < 2; s++) {
        t->exchange[s] = (aprt_exchange){APRT_ALL_REDUCE,        .dtype = APRT_F32, .ndims = 1,
                                         .extent = {LENGTH - s}, .src_stride = {1}, .dst_stride = {1}};
        make_stage(t, s, half);
    }
    for (int32_t r = 0; r < half; r++)
        t->piece[r] = (aprt_piece){r, half + r, 1, {LENGTH}, 0, {1}, 0, {1}};
    t->written = (aprt_written){.ndims = 1, .extent = {LENGTH}, .stride = {1}, .offset = {0, {half * LENGTH, LENGTH}}};
    t->channel = (aprt_channel){"h", APRT_F32, 0, 1, 0, 1, 2 * BYTES, 2 * BYTES, BYTES, BYTES, 1, 2, half, t->piece};
    t->in = (aprt_port){"x", APRT_U8, 1, {1}};
    t->out = (aprt_port){"y", APRT_F32, 1, {(int64_t)MICROBATCHES * half * LENGTH}};
    t->program = (aprt_program){.abi = APRT_ABI,
                                .name = "break",
                                .nranks = 2 * half,
                                .microbatches = MICROBATCHES,
                                .ninputs = 1,
                                .noutputs = 1,
                                .input = &t->in,
                                .output = &t->out,
                                .nstages = 2,
                                .nchannels = 1,
                                .stage = t->stage,
                                .channel = &t->channel};
}

int main(int argc, char **argv)
{
    static tables t;
    static float got[MICROBATCHES * MAX_RANKS * LENGTH], want[MICROBATCHES * MAX_RANKS * LENGTH];
    aprt_instance *in;
    const int32_t half = argc == 5 ? (int32_t)strtol(argv[1], NULL, 10) / 2 : 0;
    if (half < 1 || 2 * half > MAX_RANKS)
        return 2;
    kind = argv[2];
    bad_rank = (int32_t)strtol(argv[3], NULL, 10);
    bad_mb = strtol(argv[4], NULL, 10);
    if (strcmp(kind, "open") == 0)
        cudashim_fail_nccl(bad_rank, -1);
    make(&t, half);
    expect(half, want);
    int status = aprt_open(&t.program, NULL, &in);
    for (run_number = 0; run_number < RUNS && status == APRT_OK; run_number++)
        status = aprt_run(in, (const void *const[]){kind}, (void *const[]){got});
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (status != APRT_OK)
        fprintf(stderr, "nccl_break: %s\n", aprt_error(in));
    else if (!rank || strcmp(rank, "0") == 0)
        puts(memcmp(got, want, sizeof(float) * (size_t)(MICROBATCHES * half * LENGTH)) == 0 ? "right" : "wrong");
    aprt_close(in);
    return status;
}
