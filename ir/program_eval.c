/* Interpreter of a program: the instruction lists, stage by stage as far as each can go, with slots in the arenas. A
 * transfer takes place as soon as its microbatch has been sent and its slot at the destination is free, the last one
 * possible first: lists that rely on an order of their own show it. Every rank has outputs of its own, of which the
 * boxes that it writes are collected, as where memory is not shared. */
#include "ir/program.h"

#include "ir/local_machine.h"
#include "ir/local_written.h"

#include <string.h>

/* Microbatches of a channel that have come so far. */
typedef struct progress {
    int32_t sent, arrived, freed;
} progress;

typedef struct run {
    const ap_program *p;
    ap_arena *tmp;
    ap_machine *machine; /* by stage */
    ap_list_walk *walk;  /* by stage; act NULL: at the end */
    progress *channel;
    uint8_t **input, **output; /* of the program */
    ap_written_list *written;  /* by stage */
} run;

/* ---- memory ---- */

static uint8_t *slot_of(const run *r, const ap_channel *c, bool source, int32_t place, int32_t mb)
{
    int64_t at = source ? c->src_at + mb % c->src_depth * c->src_bytes : c->dst_at + mb % c->dst_depth * c->dst_bytes;
    return r->machine[source ? c->src_stage : c->dst_stage].device[place].arena + at;
}

/* Where the ports of a stage are in microbatch mb. */
static void set_ports(run *r, uint32_t s, int32_t mb)
{
    const ap_local *l = r->p->stages.at[s];
    for (int32_t place = 0; place < l->nranks; place++) {
        ap_machine_device *d = &r->machine[s].device[place];
        for (uint32_t i = 0; i < l->inputs.len; i++)
            if (!l->inputs.at[i].slot)
                d->input[i] = r->input[ap_program_port(r->p, s, false, i)];
        for (uint32_t i = 0; i < r->p->channels.len; i++) {
            const ap_channel *c = &r->p->channels.at[i];
            if (c->dst_stage == s)
                d->input[c->dst_input] = slot_of(r, c, false, place, mb);
            if (c->src_stage == s)
                d->output[c->src_output] = slot_of(r, c, true, place, mb);
        }
    }
}

static int64_t port_bytes(const ap_port *port)
{
    int64_t bytes = ap_dtype_bytes(port->dtype);
    for (int d = 0; d < port->rank; d++)
        bytes = ap_sat_mul(bytes, port->dim[d]);
    return bytes;
}

static ap_status open_stage(run *r, uint32_t s)
{
    const ap_local *l = r->p->stages.at[s];
    AP_TRY(ap_machine_open(&r->machine[s], l, r->tmp, ap_program_arena_bytes(r->p, s)));
    for (uint32_t i = 0; i < l->inputs.len; i++)
        r->machine[s].input_bytes[i] = port_bytes(&l->inputs.at[i]);
    for (uint32_t i = 0; i < l->outputs.len; i++) {
        int64_t bytes = r->machine[s].output_bytes[i] = port_bytes(&l->outputs.at[i]);
        for (int32_t place = 0; place < l->nranks && !l->outputs.at[i].slot; place++) {
            r->machine[s].device[place].output[i] = AP_NEW_ARRAY(r->tmp, uint8_t, bytes);
            memset(r->machine[s].device[place].output[i], 0xff, (size_t)bytes);
        }
    }
    return ap_local_written(l, r->tmp, &r->written[s]);
}

/* Copies a box of what a rank has written. */
static void collect_box(const run *r, uint32_t s, const ap_machine_device *d, const ap_written *w)
{
    const ap_port *port = &r->p->stages.at[s]->outputs.at[w->output];
    uint8_t *to = r->output[ap_program_port(r->p, s, true, w->output)];
    const uint8_t *from = d->output[w->output];
    int64_t index[AP_MAX_LOOPS] = {0}, extent[AP_MAX_LOOPS], size = ap_dtype_bytes(port->dtype);
    for (int i = 0; i < w->ndims; i++)
        if ((extent[i] = ap_counts_at(w->ncounts, w->count, i, w->extent[i], d->coords, 0)) == 0)
            return;
    for (;;) {
        int64_t at = ap_affine_at(&w->offset, d->coords);
        for (int i = 0; i < w->ndims; i++)
            at += index[i] * w->stride[i];
        memcpy(to + at * size, from + at * size, (size_t)size);
        int i = w->ndims - 1;
        while (i >= 0 && ++index[i] == extent[i])
            index[i--] = 0;
        if (i < 0)
            return;
    }
}

/* What the ranks of a stage have written in this microbatch. */
static void collect(const run *r, uint32_t s)
{
    const ap_local *l = r->p->stages.at[s];
    for (int32_t place = 0; place < l->nranks; place++) {
        const ap_machine_device *d = &r->machine[s].device[place];
        for (uint32_t i = 0; i < r->written[s].len; i++) {
            bool zero = true;
            for (int a = 0; a < l->naxes; a++)
                zero = zero && (!(r->written[s].at[i].when_mask >> a & 1) || d->coords[a] == 0);
            if (zero)
                collect_box(r, s, d, &r->written[s].at[i]);
        }
    }
}

/* ---- transfers ---- */

static void copy_piece(const run *r, const ap_channel *c, const ap_piece *x, int32_t mb)
{
    int64_t index[AP_MAX_LOOPS] = {0}, size = ap_dtype_bytes(c->dtype);
    const uint8_t *from = slot_of(r, c, true, x->src_rank - r->p->stages.at[c->src_stage]->first_rank, mb);
    uint8_t *to = slot_of(r, c, false, x->dst_rank - r->p->stages.at[c->dst_stage]->first_rank, mb);
    for (;;) {
        int64_t a = x->src_offset, b = x->dst_offset;
        for (int d = 0; d < x->ndims; d++) {
            a += index[d] * x->src_stride[d];
            b += index[d] * x->dst_stride[d];
        }
        memcpy(to + b * size, from + a * size, (size_t)size);
        int d = x->ndims - 1;
        while (d >= 0 && ++index[d] == x->extent[d])
            index[d--] = 0;
        if (d < 0)
            return;
    }
}

static bool can_arrive(const run *r, uint32_t i)
{
    const progress *g = &r->channel[i];
    return g->arrived < g->sent && g->arrived < g->freed + r->p->channels.at[i].dst_depth;
}

/* Fills what no piece fills with 0xff, as memory is that nobody has written. */
static void arrive(run *r, uint32_t i)
{
    const ap_channel *c = &r->p->channels.at[i];
    const ap_local *to = r->p->stages.at[c->dst_stage];
    int32_t mb = r->channel[i].arrived++;
    for (int32_t place = 0; place < to->nranks; place++)
        memset(slot_of(r, c, false, place, mb), 0xff, (size_t)c->dst_bytes);
    for (uint32_t k = 0; k < c->npieces; k++)
        copy_piece(r, c, &c->piece[k], mb);
}

/* ---- lists ---- */

static bool can_go(const run *r, const ap_list_walk *w)
{
    const ap_act *a = w->act;
    if (a->kind == AP_ACT_RECV)
        return r->channel[a->wire].arrived > w->microbatch;
    if (a->kind == AP_ACT_CLAIM)
        return r->channel[a->wire].arrived > w->microbatch - r->p->channels.at[a->wire].src_depth;
    return true;
}

static ap_status go(run *r, uint32_t s)
{
    ap_list_walk *w = &r->walk[s];
    const ap_act *a = w->act;
    if (a->kind == AP_ACT_SEND)
        r->channel[a->wire].sent = w->microbatch + 1;
    if (a->kind == AP_ACT_FREE)
        r->channel[a->wire].freed = w->microbatch + 1;
    if (a->kind == AP_ACT_RUN) {
        ap_machine_set_microbatch(&r->machine[s], w->microbatch);
        set_ports(r, s, w->microbatch);
        AP_TRY(ap_machine_run(&r->machine[s]));
        collect(r, s);
    }
    if (!ap_list_next(w))
        w->act = NULL;
    return AP_OK;
}

/* Every stage goes as far as it can, then one transfer takes place, until nothing moves. */
static ap_status obey(run *r)
{
    for (;;) {
        bool left = false;
        for (uint32_t s = r->p->stages.len; s-- > 0;) {
            while (r->walk[s].act && can_go(r, &r->walk[s]))
                AP_TRY(go(r, s));
            left = left || r->walk[s].act;
        }
        uint32_t i = r->p->channels.len;
        while (i > 0 && !can_arrive(r, i - 1))
            i--;
        if (i == 0)
            return left ? ap_fail(r->p->ctx, AP_ERR_BUG, 0, "the instruction lists of the stages wait for each other")
                        : AP_OK;
        arrive(r, i - 1);
    }
}

/* ---- the whole ---- */

static ap_status set_inputs(run *r, const ap_tensor *inputs)
{
    for (uint32_t i = 0; i < r->p->inputs.len; i++) {
        AP_TRY(ap_port_check(r->p->ctx, &r->p->inputs.at[i], "input", &inputs[i]));
        r->input[i] = AP_NEW_ARRAY(r->tmp, uint8_t, port_bytes(&r->p->inputs.at[i]));
        ap_tensor_to_bytes(&inputs[i], r->input[i]);
    }
    return AP_OK;
}

static ap_status make_outputs(run *r, ap_arena *arena, ap_tensor *outputs)
{
    for (uint32_t i = 0; i < r->p->outputs.len; i++) {
        AP_TRY(ap_port_tensor(r->p->ctx, &r->p->outputs.at[i], arena, &outputs[i]));
        int64_t bytes = port_bytes(&r->p->outputs.at[i]);
        r->output[i] = AP_NEW_ARRAY(r->tmp, uint8_t, bytes);
        memset(r->output[i], 0xff, (size_t)bytes);
    }
    return AP_OK;
}

static ap_status run_program(run *r, ap_arena *arena, const ap_tensor *inputs, ap_tensor *outputs)
{
    const ap_program *p = r->p;
    r->machine = AP_NEW_ARRAY(r->tmp, ap_machine, p->stages.len);
    r->walk = AP_NEW_ARRAY(r->tmp, ap_list_walk, p->stages.len);
    r->channel = AP_NEW_ARRAY(r->tmp, progress, p->channels.len);
    r->written = AP_NEW_ARRAY(r->tmp, ap_written_list, p->stages.len);
    r->input = AP_NEW_ARRAY(r->tmp, uint8_t *, p->inputs.len);
    r->output = AP_NEW_ARRAY(r->tmp, uint8_t *, p->outputs.len);
    AP_TRY(set_inputs(r, inputs));
    AP_TRY(make_outputs(r, arena, outputs));
    for (uint32_t s = 0; s < p->stages.len; s++) {
        AP_TRY(open_stage(r, s));
        r->walk[s] = (ap_list_walk){.list = &p->lists.at[s]};
        if (!ap_list_next(&r->walk[s]))
            r->walk[s].act = NULL;
    }
    AP_TRY(obey(r));
    for (uint32_t i = 0; i < p->outputs.len; i++)
        ap_tensor_from_bytes(&outputs[i], r->output[i]);
    return AP_OK;
}

ap_status ap_program_eval(const ap_program *p, ap_arena *arena, const ap_tensor *inputs, ap_tensor *outputs)
{
    ap_arena tmp;
    ap_arena_init(&tmp, p->ctx->scratch.out_of_memory, p->ctx->scratch.user);
    run r = {.p = p, .tmp = &tmp};
    ap_status status = run_program(&r, arena, inputs, outputs);
    ap_arena_deinit(&tmp);
    return status;
}
