/* A small pipeline for tests of failures: every rank is a stage and adds its number to what it receives. What goes
 * wrong, where and when, stands in a `fault`, which is input 0. */
#ifndef TEST_CHAIN_H
#define TEST_CHAIN_H

#include "autopar_rt.h"

#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { CHAIN_RANKS = 8, CHAIN_LENGTH = 1000, CHAIN_MICROBATCHES = 8 };

typedef enum fault_kind {
    FAULT_NONE,
    FAULT_INDEX, /* an index out of range */
    FAULT_CALL,  /* a library fails */
    FAULT_EXIT,  /* the process ends with code 3 */
    FAULT_SLOW,  /* a kernel that takes long */
    FAULT_LEAVE  /* a list that ends too early */
} fault_kind;

typedef struct fault {
    fault_kind kind;
    int32_t rank;
    int64_t mb;
    double seconds; /* of FAULT_SLOW; of every kernel otherwise, 0 for none */
} fault;

typedef struct chain {
    aprt_program program;
    aprt_stage stage[CHAIN_RANKS];
    aprt_channel channel[CHAIN_RANKS];
    aprt_piece piece[CHAIN_RANKS];
    int32_t input[CHAIN_RANKS][2], output[CHAIN_RANKS][1];
    aprt_written written;
    aprt_param param;
} chain;

static const aprt_port chain_in = {"fault", APRT_U8, 1, {sizeof(fault)}};
static const aprt_port chain_out = {"y", APRT_F32, 2, {CHAIN_MICROBATCHES, CHAIN_LENGTH}};
static const aprt_instr chain_instrs[] = {{"add", "node", "Add", 0}, {"gather", "emb", "Gather", 0}};

static void chain_sleep(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
    nanosleep(&t, NULL);
}

static int chain_fail(aprt_device *d, const fault *f)
{
    if (f->rank != d->rank || f->mb != d->mb)
        return APRT_OK;
    if (f->kind == FAULT_INDEX) {
        d->bad = (aprt_bad){.index = 12, .limit = 7};
        return aprt_fail_index(d);
    }
    if (f->kind == FAULT_EXIT)
        exit(3);
    return f->kind == FAULT_CALL ? aprt_fail_call(d, APRT_ERR_ENV, "the library is ill") : APRT_OK;
}

/* The last rank's output is the program's, of which a microbatch is a row. */
static int chain_run(aprt_device *d)
{
    const fault *f = d->input[0];
    const bool here = f->rank == d->rank && f->mb == d->mb;
    const float *x = d->stage->ninputs > 1 ? d->input[1] : NULL;
    float *y = (float *)d->output[0] + (d->stage->output[0] < 0 ? 0 : d->mb * CHAIN_LENGTH);
    aprt_at(d, 0);
    for (int64_t i = 0; i < CHAIN_LENGTH; i++)
        y[i] = (x ? x[i] : (float)(d->mb * CHAIN_LENGTH + i)) + (float)d->rank;
    chain_sleep(f->kind == FAULT_SLOW && !here ? 0 : f->seconds);
    aprt_at(d, 1);
    return chain_fail(d, f);
}

static const fault *chain_fault; /* lists have no inputs; set before a run */

static int chain_list(aprt_device *d)
{
    const uint32_t in = (uint32_t)d->rank - 1, out = (uint32_t)d->rank;
    const bool receives = d->rank > 0, sends = d->stage->output[0] < 0;
    const fault *f = chain_fault;
    int status = APRT_OK;
    for (int64_t mb = 0; mb < CHAIN_MICROBATCHES && status == APRT_OK; mb++) {
        const bool here = f->rank == d->rank && f->mb == mb;
        if (here && f->kind == FAULT_LEAVE)
            return APRT_OK;
        if (receives && status == APRT_OK)
            status = aprt_recv(d, in, mb);
        if (sends && status == APRT_OK)
            status = aprt_claim(d, out, mb);
        if (status == APRT_OK)
            status = aprt_stage_run(d, mb);
        if (receives && status == APRT_OK)
            status = aprt_free(d, in, mb);
        if (sends && status == APRT_OK)
            status = aprt_send(d, out, mb);
    }
    return status;
}

static void chain_make(chain *c, int32_t ranks)
{
    const int64_t bytes = CHAIN_LENGTH * (int64_t)sizeof(float);
    memset(c, 0, sizeof *c);
    c->written = (aprt_written){.ndims = 1, .extent = {CHAIN_LENGTH}, .stride = {1}, .offset = {0, {CHAIN_LENGTH}}};
    for (int32_t r = 0; r < ranks; r++) {
        const bool last = r == ranks - 1;
        c->input[r][1] = -r; /* -1 - (r - 1) */
        c->output[r][0] = last ? 0 : -1 - r;
        c->stage[r] = (aprt_stage){.name = "link",
                                   .first_rank = r,
                                   .nranks = 1,
                                   .naxes = 1,
                                   .axis_size = {CHAIN_MICROBATCHES},
                                   .axis_stride = {1},
                                   .arena_bytes = 4 * bytes,
                                   .ninputs = r > 0 ? 2 : 1,
                                   .noutputs = 1,
                                   .input = c->input[r],
                                   .output = c->output[r],
                                   .ninstrs = 2,
                                   .instr = chain_instrs,
                                   .run = chain_run,
                                   .list = chain_list,
                                   .nwritten = last,
                                   .written = &c->written};
        if (last)
            break;
        c->piece[r] = (aprt_piece){.src_rank = r,
                                   .dst_rank = r + 1,
                                   .ndims = 1,
                                   .extent = {CHAIN_LENGTH},
                                   .src_stride = {1},
                                   .dst_stride = {1}};
        c->channel[r] = (aprt_channel){.name = "h",
                                       .dtype = APRT_F32,
                                       .src_stage = r,
                                       .dst_stage = r + 1,
                                       .dst_input = 1,
                                       .src_at = 0,
                                       .dst_at = 2 * bytes,
                                       .src_bytes = bytes,
                                       .dst_bytes = bytes,
                                       .src_depth = 2,
                                       .dst_depth = 2,
                                       .npieces = 1,
                                       .piece = &c->piece[r]};
    }
    c->program = (aprt_program){.abi = APRT_ABI,
                                .name = "chain",
                                .nranks = ranks,
                                .microbatches = CHAIN_MICROBATCHES,
                                .ninputs = 1,
                                .noutputs = 1,
                                .input = &chain_in,
                                .output = &chain_out,
                                .nstages = (uint32_t)ranks,
                                .nchannels = (uint32_t)ranks - 1,
                                .stage = c->stage,
                                .channel = c->channel};
}

/* Of a run without fault. */
static bool chain_right(int32_t ranks, const float *y)
{
    const int32_t sum = ranks * (ranks - 1) / 2;
    for (int64_t i = 0; i < (int64_t)CHAIN_MICROBATCHES * CHAIN_LENGTH; i++)
        if (y[i] != (float)i + (float)sum)
            return false;
    return true;
}

#endif
