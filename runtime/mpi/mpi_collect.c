/* SPDX-License-Identifier: MIT
 *
 * What comes together on rank 0: outputs at the end of a run, traces and profiles, and how much clocks differ. */
#include "mpi_comm.h"

#include <stdlib.h>
#include <time.h>

enum { TAG_OUTPUT = 2, TAG_SIZE, TAG_BYTES, TAG_CLOCK, CLOCK_ROUNDS = 8 };

/* ---- outputs ---- */

typedef struct visit {
    mpi_comm *c;
    int32_t rank;
    void *const *outputs;
    char *bytes; /* NULL: only count */
    bool unpack;
    size_t at;
    bool outside; /* a box is not in its output */
} visit;

static bool box_in_output(const aprt_port *port, const aprt_box *b, int64_t offset)
{
    int64_t bytes = 0, last = offset;
    for (int32_t d = 0; d < b->ndims; d++)
        last += (b->extent[d] - 1) * b->a[d];
    return aprt_tensor_bytes(port->dtype, port->rank, port->dim, &bytes) && offset >= 0 && last >= 0 &&
           last < bytes / aprt_dtype_bytes(port->dtype);
}

static void visit_box(visit *v, const aprt_written *w, int64_t mb)
{
    const aprt_port *port = &v->c->layout->program->output[w->output];
    const int32_t size = aprt_dtype_bytes(port->dtype);
    aprt_box box;
    int64_t offset;
    if (!aprt_written_box(v->c->layout, v->rank, mb, w, &box, &offset))
        return;
    const int64_t count = aprt_box_count(&box);
    v->outside = v->outside || !box_in_output(port, &box, offset);
    if (v->bytes && !v->outside) {
        char *whole = (char *)v->outputs[w->output] + offset * size;
        if (v->unpack) {
            aprt_box back = box;
            memcpy(back.a, box.b, sizeof back.a);
            memcpy(back.b, box.a, sizeof back.b);
            aprt_box_copy(&back, 0, count, size, v->bytes + v->at, whole);
        } else {
            aprt_box_copy(&box, 0, count, size, whole, v->bytes + v->at);
        }
    }
    v->at += (size_t)(count * size);
}

/* Every box that a rank writes, in one order at both ends. */
static size_t visit_boxes(visit *v)
{
    const aprt_stage *s = aprt_layout_stage(v->c->layout, v->rank);
    v->at = 0;
    for (uint32_t i = 0; i < s->nwritten; i++)
        for (int64_t mb = 0; mb < v->c->layout->program->microbatches; mb++)
            visit_box(v, &s->written[i], mb);
    return v->at;
}

static int move_outputs(mpi_comm *c, int32_t rank, void *const outputs[])
{
    visit v = {.c = c, .rank = rank, .outputs = outputs};
    const size_t size = visit_boxes(&v);
    if (v.outside) {
        aprt_fail(c->setup.why(c->device), APRT_ERR_BUG, "rank %d writes outside of an output", rank);
        return APRT_ERR_BUG;
    }
    int status = mpi_buffer_grow(c, c->device, &c->in, size);
    if (status != APRT_OK || size == 0)
        return status;
    v.bytes = c->in.bytes;
    v.unpack = rank != c->rank;
    if (v.unpack) {
        status = mpi_batch_recv(c, c->device, c->control, rank, TAG_OUTPUT, v.bytes, size);
    } else {
        visit_boxes(&v);
        status = mpi_batch_send(c, c->device, c->control, 0, TAG_OUTPUT, v.bytes, size);
    }
    if (status == APRT_OK)
        status = mpi_batch_wait(c, c->device, APRT_WAIT_COLLECT);
    if (status == APRT_OK && v.unpack)
        visit_boxes(&v);
    return status;
}

int mpi_collect(aprt_comm *base, void *const outputs[], aprt_failure *why)
{
    mpi_comm *c = (mpi_comm *)base;
    int status = mpi_finish(c);
    atomic_store(&c->moving, 0);
    if (c->rank != 0 && status == APRT_OK)
        status = move_outputs(c, c->rank, outputs);
    for (int32_t r = 1; c->rank == 0 && r < c->layout->program->nranks && status == APRT_OK; r++)
        status = move_outputs(c, r, outputs);
    if (status != APRT_OK)
        *why = *c->setup.why(c->device);
    return status;
}

/* ---- bytes of all ---- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int pass(mpi_comm *c, int32_t peer, int tag, bool sends, void *bytes, size_t size)
{
    int status = sends ? mpi_batch_send(c, NULL, c->control, peer, tag, bytes, size)
                       : mpi_batch_recv(c, NULL, c->control, peer, tag, bytes, size);
    return status == APRT_OK ? mpi_batch_wait(c, NULL, APRT_WAIT_COLLECT) : status;
}

/* How much later the clock of `rank` is, from the round that took least time: its answer came in the middle. */
static int compare_clocks(mpi_comm *c, int32_t rank, double *out)
{
    double shortest = INFINITY;
    int status = APRT_OK;
    for (int i = 0; i < CLOCK_ROUNDS && status == APRT_OK; i++) {
        double from = now(), theirs = 0;
        status = pass(c, rank, TAG_CLOCK, true, &theirs, sizeof theirs);
        if (status == APRT_OK)
            status = pass(c, rank, TAG_CLOCK, false, &theirs, sizeof theirs);
        double to = now();
        if (to - from < shortest) {
            shortest = to - from;
            *out = theirs - (from + to) / 2;
        }
    }
    return status;
}

static int give(mpi_comm *c, const void *bytes, size_t size)
{
    double t = 0;
    int status = APRT_OK;
    for (int i = 0; i < CLOCK_ROUNDS && status == APRT_OK; i++) {
        status = pass(c, 0, TAG_CLOCK, false, &t, sizeof t);
        t = now();
        if (status == APRT_OK)
            status = pass(c, 0, TAG_CLOCK, true, &t, sizeof t);
    }
    if (status == APRT_OK)
        status = pass(c, 0, TAG_SIZE, true, &size, sizeof size);
    return status == APRT_OK ? pass(c, 0, TAG_BYTES, true, (void *)(uintptr_t)bytes, size) : status;
}

static int take(mpi_comm *c, int32_t rank, void **out, size_t *total, double *later)
{
    size_t size = 0;
    int status = compare_clocks(c, rank, later);
    if (status == APRT_OK)
        status = pass(c, rank, TAG_SIZE, false, &size, sizeof size);
    if (status != APRT_OK)
        return status;
    char *all = realloc(*out, *total + size + 1);
    if (!all)
        return mpi_comm_fail(c, NULL, MPI_ERR_NO_MEM, "what ranks have measured");
    *out = all;
    status = pass(c, rank, TAG_BYTES, false, all + *total, size);
    *total += size;
    return status;
}

int mpi_gather(aprt_comm *base, const void *bytes, size_t size, void **out, size_t *total, double **later,
               aprt_failure *why)
{
    mpi_comm *c = (mpi_comm *)base;
    int status = APRT_OK;
    *out = NULL;
    *later = NULL;
    *total = 0;
    if (c->rank != 0) {
        status = give(c, bytes, size);
    } else {
        *out = malloc(size + 1);
        *later = calloc((size_t)c->layout->program->nranks, sizeof **later);
        if (!*out || !*later)
            return aprt_fail(why, APRT_ERR_ENV, "out of memory");
        memcpy(*out, bytes, size);
        *total = size;
        for (int32_t r = 1; r < c->layout->program->nranks && status == APRT_OK; r++)
            status = take(c, r, out, total, &(*later)[r]);
    }
    if (status != APRT_OK)
        aprt_fail(why, status, "the ranks' measurements could not be gathered");
    return status;
}
