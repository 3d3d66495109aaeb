#include "backend/llvm/image.h"

#include "backend/llvm/names.h"
#include "ir/local_written.h"
#include "runtime/autopar_rt.h"

#include <string.h>

typedef struct maker {
    ap_image *image;
    ap_emit *e;
} maker;

/* A block with a copy of so many elements (NULL: zeros); AP_NONE where there are none. */
static uint32_t add(maker *m, const void *bytes, size_t count, size_t size)
{
    ap_image_block block = {.size = count * size};
    if (!count)
        return AP_NONE;
    block.bytes = ap_arena_alloc(m->image->arena, (block.size + 15) / 16 * 16);
    memset(block.bytes, 0, (block.size + 15) / 16 * 16);
    if (bytes)
        memcpy(block.bytes, bytes, block.size);
    ap_vec_push(m->image->arena, &m->image->blocks, block);
    return m->image->blocks.len - 1;
}

static void name_block(maker *m, uint32_t block, const char *name, bool visible)
{
    if (block == AP_NONE)
        return;
    m->image->blocks.at[block].name = name;
    m->image->blocks.at[block].visible = visible;
}

/* The place `at` of a block points to another one; places are given in rising order. */
static void point(maker *m, uint32_t block, size_t at, uint32_t to)
{
    ap_image_block *b = &m->image->blocks.at[block];
    if (to == AP_NONE)
        return;
    memcpy(b->bytes + at, &m->image->blocks.at[to].bytes, sizeof(char *));
    ap_vec_push(m->image->arena, &b->pointers, (ap_image_pointer){.at = (uint32_t)at, .block = to});
}

static void point_symbol(maker *m, uint32_t block, size_t at, const char *symbol)
{
    ap_image_block *b = &m->image->blocks.at[block];
    ap_vec_push(m->image->arena, &b->pointers,
                (ap_image_pointer){.at = (uint32_t)at, .block = AP_NONE, .symbol = symbol});
}

static uint32_t add_string(maker *m, const char *s)
{
    return add(m, s, strlen(s) + 1, 1);
}

#define PLACE(T, i, member) ((size_t)(i) * sizeof(T) + offsetof(T, member))

/* ---- small records ---- */

static aprt_affine affine(const ap_affine *a)
{
    aprt_affine r = {.base = a->base};
    for (int i = 0; i < AP_MAX_AXES; i++)
        r.step[i] = a->step[i];
    return r;
}

static uint32_t add_counts(maker *m, uint8_t n, const ap_count *count)
{
    aprt_count *r = AP_NEW_ARRAY(&m->e->ctx->scratch, aprt_count, n + 1u);
    for (uint8_t i = 0; i < n; i++)
        r[i] = (aprt_count){count[i].dim, affine(&count[i].value), count[i].per_peer};
    return add(m, r, n, sizeof *r);
}

/* Without its name. */
static aprt_port port_record(const ap_port *p)
{
    aprt_port r = {.dtype = ap_dtype_onnx(p->dtype), .rank = p->rank};
    for (int d = 0; d < p->rank; d++)
        r.dim[d] = p->dim[d];
    return r;
}

static uint32_t add_ports(maker *m, uint32_t n, const ap_port *port)
{
    aprt_port *r = AP_NEW_ARRAY(&m->e->ctx->scratch, aprt_port, n + 1);
    for (uint32_t i = 0; i < n; i++)
        r[i] = port_record(&port[i]);
    uint32_t block = add(m, r, n ? n : 1, sizeof *r);
    for (uint32_t i = 0; i < n; i++)
        point(m, block, PLACE(aprt_port, i, name), add_string(m, ap_name_str(m->e->ctx, port[i].name)));
    return block;
}

static void copy(int64_t *to, const int64_t *from, int n)
{
    memcpy(to, from, (size_t)n * sizeof *to);
}

/* ---- tables of a stage ---- */

static uint32_t add_params(maker *m)
{
    const ap_local *p = m->e->p;
    aprt_param *r = AP_NEW_ARRAY(&m->e->ctx->scratch, aprt_param, p->params.len + 1);
    for (uint32_t i = 0; i < p->params.len; i++) {
        const ap_local_param *q = &p->params.at[i];
        r[i] = (aprt_param){.port = port_record(&q->port),
                            .ndims = q->nfactors,
                            .offset = affine(&q->offset),
                            .byte_offset = q->byte_offset,
                            .bytes = q->bytes,
                            .ncounts = q->ncounts,
                            .store = (aprt_store)q->store.kind,
                            .k = q->store.k,
                            .n = q->store.n};
        copy(r[i].extent, q->extent, q->nfactors);
        copy(r[i].stride, q->stride, q->nfactors);
    }
    uint32_t block = add(m, r, p->params.len, sizeof *r);
    for (uint32_t i = 0; i < p->params.len; i++) {
        const ap_local_param *q = &p->params.at[i];
        const char *name = m->e->weight[m->e->first_param[m->e->stage] + i];
        point(m, block, PLACE(aprt_param, i, port.name), add_string(m, name));
        point(m, block, PLACE(aprt_param, i, count), add_counts(m, q->ncounts, q->count));
    }
    return block;
}

static uint32_t add_groups(maker *m)
{
    const ap_local *p = m->e->p;
    aprt_group *r = AP_NEW_ARRAY(&m->e->ctx->scratch, aprt_group, p->groups.len + 1);
    for (uint32_t i = 0; i < p->groups.len; i++)
        r[i] = (aprt_group){p->groups.at[i].count, p->groups.at[i].size, NULL};
    uint32_t block = add(m, r, p->groups.len, sizeof *r);
    for (uint32_t i = 0; i < p->groups.len; i++) {
        const ap_group *g = &p->groups.at[i];
        size_t n = (size_t)g->count * (size_t)g->size;
        int32_t *rank = AP_NEW_ARRAY(&m->e->ctx->scratch, int32_t, n + 1);
        for (size_t k = 0; k < n; k++)
            rank[k] = p->first_rank + g->rank[k];
        point(m, block, PLACE(aprt_group, i, rank), add(m, rank, n, sizeof *rank));
    }
    return block;
}

static uint32_t add_exchanges(maker *m)
{
    static const aprt_exchange_kind kind[AP_EXCHANGE_KIND_COUNT] = {
        [AP_EXCHANGE_ALL_GATHER] = APRT_ALL_GATHER,
        [AP_EXCHANGE_REDUCE_SCATTER] = APRT_REDUCE_SCATTER,
        [AP_EXCHANGE_ALL_REDUCE] = APRT_ALL_REDUCE,
        [AP_EXCHANGE_ALL_TO_ALL] = APRT_ALL_TO_ALL,
    };
    static const aprt_fold fold[AP_PARTIAL_COUNT] = {
        [AP_PARTIAL_SUM] = APRT_FOLD_SUM, [AP_PARTIAL_MAX] = APRT_FOLD_MAX, [AP_PARTIAL_MIN] = APRT_FOLD_MIN};
    const ap_local *p = m->e->p;
    aprt_exchange *r = AP_NEW_ARRAY(&m->e->ctx->scratch, aprt_exchange, p->instrs.len + 1);
    const ap_exchange **from = AP_NEW_ARRAY(&m->e->ctx->scratch, const ap_exchange *, p->instrs.len + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->instrs.len; i++) {
        const ap_exchange *x = &p->instrs.at[i].exchange;
        if (p->instrs.at[i].kind != AP_INSTR_EXCHANGE)
            continue;
        r[n] = (aprt_exchange){.kind = kind[x->kind],
                               .fold = fold[x->fold],
                               .dtype = ap_dtype_onnx(x->dtype),
                               .group = x->group,
                               .ndims = x->ndims,
                               .src_me = x->src_me,
                               .dst_peer = x->dst_peer,
                               .ncounts = x->ncounts};
        copy(r[n].extent, x->extent, x->ndims);
        copy(r[n].src_stride, x->src_stride, x->ndims);
        copy(r[n].dst_stride, x->dst_stride, x->ndims);
        from[n++] = x;
    }
    uint32_t block = add(m, r, n, sizeof *r);
    name_block(m, block, ap_ll_exchanges(m->e), false);
    for (uint32_t i = 0; i < n; i++)
        point(m, block, PLACE(aprt_exchange, i, count), add_counts(m, from[i]->ncounts, from[i]->count));
    return block;
}

static uint32_t add_instrs(maker *m)
{
    const ap_local *p = m->e->p;
    ap_ctx *ctx = m->e->ctx;
    uint32_t block = add(m, NULL, p->instrs.len, sizeof(aprt_instr));
    for (uint32_t i = 0; i < p->instrs.len; i++) {
        const ap_instr *in = &p->instrs.at[i];
        ap_loc_info loc = ap_loc_get(ctx, in->loc);
        const char *what = in->kind == AP_INSTR_CALL ? ap_name_str(ctx, p->kernels.at[in->kernel].name)
                                                     : ap_emit_exchange_name(in->exchange.kind);
        memcpy(m->image->blocks.at[block].bytes + PLACE(aprt_instr, i, picoseconds), &in->picoseconds,
               sizeof in->picoseconds);
        point(m, block, PLACE(aprt_instr, i, what), add_string(m, what));
        point(m, block, PLACE(aprt_instr, i, node), add_string(m, ap_name_str(ctx, loc.node)));
        point(m, block, PLACE(aprt_instr, i, op), add_string(m, ap_name_str(ctx, loc.op)));
    }
    return block;
}

static ap_status add_written(maker *m, uint32_t *out_count, uint32_t *out)
{
    ap_written_list all;
    AP_TRY(ap_local_written(m->e->p, &m->e->ctx->scratch, &all));
    aprt_written *r = AP_NEW_ARRAY(&m->e->ctx->scratch, aprt_written, all.len + 1);
    for (uint32_t i = 0; i < all.len; i++) {
        const ap_written *w = &all.at[i];
        r[i] = (aprt_written){.output = (int32_t)ap_program_port(m->e->program, m->e->stage, true, w->output),
                              .ndims = w->ndims,
                              .offset = affine(&w->offset),
                              .when_mask = w->when_mask,
                              .ncounts = w->ncounts};
        copy(r[i].extent, w->extent, w->ndims);
        copy(r[i].stride, w->stride, w->ndims);
    }
    *out_count = all.len;
    *out = add(m, r, all.len, sizeof *r);
    for (uint32_t i = 0; i < all.len; i++)
        point(m, *out, PLACE(aprt_written, i, count), add_counts(m, all.at[i].ncounts, all.at[i].count));
    return AP_OK;
}

static uint32_t add_numbers(maker *m, bool output, uint32_t n)
{
    int32_t *r = AP_NEW_ARRAY(&m->e->ctx->scratch, int32_t, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t port = ap_program_port(m->e->program, m->e->stage, output, i);
        r[i] = port != AP_NONE ? (int32_t)port : -1 - (int32_t)ap_emit_channel_of(m->e, output, i);
    }
    return add(m, r, n, sizeof *r);
}

/* ---- stages ---- */

static aprt_stage stage_record(const maker *m)
{
    const ap_local *p = m->e->p;
    uint32_t slots = ap_emit_conv_slots(m->e);
    aprt_stage s = {.first_rank = p->first_rank,
                    .nranks = p->nranks,
                    .naxes = p->naxes,
                    .arena_bytes = ap_program_arena_bytes(m->e->program, m->e->stage),
                    .param_bytes = ap_local_kept_bytes(p),
                    .ninputs = p->inputs.len,
                    .noutputs = p->outputs.len,
                    .nparams = p->params.len,
                    .ngroups = p->groups.len,
                    .ninstrs = p->instrs.len,
                    .nslots = slots ? slots + 1 : 0}; /* one more is what they share */
    for (int a = 0; a < p->naxes; a++) {
        s.axis_size[a] = p->axis_size[a];
        s.axis_stride[a] = p->axis_stride[a];
    }
    for (uint32_t k = 0; k < p->kernels.len; k++)
        s.scratch_bytes = ap_max_i64(s.scratch_bytes, ap_emit_nest_scratch(&p->kernels.at[k]));
    return s;
}

/* Fills the record of the stage that the emitter has turned to. */
static ap_status fill_stage(maker *m, uint32_t block)
{
    const ap_local *p = m->e->p;
    uint32_t written, i = m->e->stage;
    aprt_stage s = stage_record(m);
    AP_TRY(add_written(m, &s.nwritten, &written));
    memcpy(m->image->blocks.at[block].bytes + i * sizeof s, &s, sizeof s);
    point(m, block, PLACE(aprt_stage, i, name), add_string(m, ap_name_str(m->e->ctx, p->name)));
    point(m, block, PLACE(aprt_stage, i, input), add_numbers(m, false, p->inputs.len));
    point(m, block, PLACE(aprt_stage, i, output), add_numbers(m, true, p->outputs.len));
    point(m, block, PLACE(aprt_stage, i, param), add_params(m));
    point(m, block, PLACE(aprt_stage, i, group), add_groups(m));
    point(m, block, PLACE(aprt_stage, i, instr), add_instrs(m));
    point_symbol(m, block, PLACE(aprt_stage, i, run), ap_ll_stage_function(m->e, AP_LL_RUN));
    point_symbol(m, block, PLACE(aprt_stage, i, list), ap_ll_stage_function(m->e, AP_LL_LIST));
    if (s.nslots) {
        point_symbol(m, block, PLACE(aprt_stage, i, prepare), ap_ll_stage_function(m->e, AP_LL_PREPARE));
        point_symbol(m, block, PLACE(aprt_stage, i, release), "aprt_conv_release");
    }
    point(m, block, PLACE(aprt_stage, i, written), written);
    add_exchanges(m);
    return AP_OK;
}

/* ---- convolutions ---- */

static aprt_conv_op step_op(uint16_t pw)
{
    switch (pw) {
    case AP_PW_RELU:
        return APRT_CONV_RELU;
    case AP_PW_MUL:
        return APRT_CONV_MUL;
    case AP_PW_MAX:
        return APRT_CONV_MAX;
    case AP_PW_MIN:
        return APRT_CONV_MIN;
    default:
        return APRT_CONV_ADD;
    }
}

static void add_conv(maker *m, const ap_kernel *k)
{
    const ap_conv *c = &k->conv;
    int rank = c->nspatial + 3;
    aprt_conv r = {.dtype = ap_dtype_onnx(c->dtype), .n = c->n, .g = c->g, .m = c->m, .c = c->c};
    r.nspatial = c->nspatial;
    for (int d = 0; d < c->nspatial; d++) {
        const ap_conv_dim *w = &c->dim[d];
        r.dim[d] = (aprt_conv_dim){c->in[d], c->kernel[d], c->out[d], w->lo, w->stride, w->dilate, w->hole, w->flip};
    }
    copy(r.x, c->x, rank);
    copy(r.w, c->w, rank);
    copy(r.y, c->y, rank);
    r.nsteps = c->nsteps;
    for (int i = 0; i < c->nsteps; i++) {
        const ap_conv_step *s = &c->step[i];
        r.step[i] = (aprt_conv_step){.op = step_op(s->pw), .other = (aprt_conv_other)s->other};
        if (s->other == AP_CONV_NUMBER)
            r.step[i].number = ap_dtype_is_float(c->dtype) ? s->imm.f : (double)s->imm.i;
        if (s->other == AP_CONV_OPERAND)
            r.step[i].operand = (int32_t)s->operand - 3;
        copy(r.step[i].stride, s->stride, rank);
    }
    name_block(m, add(m, &r, 1, sizeof r), ap_ll_kernel_name(m->e, k), false);
}

/* ---- channels ---- */

static uint32_t add_pieces(maker *m, const ap_channel *c)
{
    aprt_piece *r = AP_NEW_ARRAY(&m->e->ctx->scratch, aprt_piece, c->npieces + 1);
    for (uint32_t i = 0; i < c->npieces; i++) {
        const ap_piece *x = &c->piece[i];
        r[i] = (aprt_piece){.src_rank = x->src_rank,
                            .dst_rank = x->dst_rank,
                            .ndims = x->ndims,
                            .src_offset = x->src_offset,
                            .dst_offset = x->dst_offset};
        copy(r[i].extent, x->extent, x->ndims);
        copy(r[i].src_stride, x->src_stride, x->ndims);
        copy(r[i].dst_stride, x->dst_stride, x->ndims);
    }
    return add(m, r, c->npieces ? c->npieces : 1, sizeof *r);
}

static uint32_t add_channels(maker *m)
{
    const ap_program *g = m->e->program;
    aprt_channel *r = AP_NEW_ARRAY(&m->e->ctx->scratch, aprt_channel, g->channels.len + 1);
    for (uint32_t i = 0; i < g->channels.len; i++) {
        const ap_channel *c = &g->channels.at[i];
        r[i] = (aprt_channel){.dtype = ap_dtype_onnx(c->dtype),
                              .src_stage = c->src_stage,
                              .dst_stage = c->dst_stage,
                              .src_output = c->src_output,
                              .dst_input = c->dst_input,
                              .src_at = c->src_at,
                              .dst_at = c->dst_at,
                              .src_bytes = c->src_bytes,
                              .dst_bytes = c->dst_bytes,
                              .src_depth = c->src_depth,
                              .dst_depth = c->dst_depth,
                              .npieces = c->npieces};
    }
    uint32_t block = add(m, r, g->channels.len, sizeof *r);
    for (uint32_t i = 0; i < g->channels.len; i++) {
        const ap_channel *c = &g->channels.at[i];
        point(m, block, PLACE(aprt_channel, i, name), add_string(m, ap_name_str(m->e->ctx, c->name)));
        point(m, block, PLACE(aprt_channel, i, piece), add_pieces(m, c));
    }
    return block;
}

/* ---- the program ---- */

/* The tensors of NAME.h are laid out as ports are, so that one table serves both. */

static void fill_program(maker *m, uint32_t stages)
{
    const ap_program *g = m->e->program;
    size_t nstages = g->stages.len, runs = (size_t)g->microbatches;
    aprt_program r = {.abi = APRT_ABI,
                      .nranks = g->nranks,
                      .microbatches = g->microbatches,
                      .ninputs = g->inputs.len,
                      .noutputs = g->outputs.len,
                      .nstages = g->stages.len,
                      .nchannels = g->channels.len};
    uint32_t block = add(m, &r, 1, sizeof r);
    m->image->program = block;
    name_block(m, block, ap_name_str(m->e->ctx, ap_name_format(m->e->ctx, "%s_program", m->e->opt->name)), true);
    point(m, block, offsetof(aprt_program, name), add_string(m, m->e->opt->name));
    uint32_t input = add_ports(m, g->inputs.len, g->inputs.at), output = add_ports(m, g->outputs.len, g->outputs.at);
    name_block(m, input, ap_name_str(m->e->ctx, ap_name_format(m->e->ctx, "%s_input", m->e->opt->name)), true);
    name_block(m, output, ap_name_str(m->e->ctx, ap_name_format(m->e->ctx, "%s_output", m->e->opt->name)), true);
    point(m, block, offsetof(aprt_program, input), input);
    point(m, block, offsetof(aprt_program, output), output);
    point(m, block, offsetof(aprt_program, stage), stages);
    point(m, block, offsetof(aprt_program, channel), add_channels(m));
    if (g->run_ps)
        point(m, block, offsetof(aprt_program, run_ps), add(m, g->run_ps, nstages * runs, sizeof *g->run_ps));
    if (g->move_ps && g->channels.len)
        point(m, block, offsetof(aprt_program, move_ps),
              add(m, g->move_ps, 2 * g->channels.len * runs, sizeof *g->move_ps));
}

ap_status ap_image_make(ap_emit *e, ap_arena *arena, ap_image *out)
{
    *out = (ap_image){.arena = arena};
    maker m = {.image = out, .e = e};
    uint32_t stages = add(&m, NULL, e->program->stages.len, sizeof(aprt_stage));
    for (uint32_t k = 0; k < e->nkernels; k++)
        if (e->kernel[k]->kind == AP_KERNEL_CONV)
            add_conv(&m, e->kernel[k]);
    for (uint32_t s = 0; s < e->program->stages.len; s++) {
        ap_emit_turn(e, s);
        AP_TRY(fill_stage(&m, stages));
    }
    fill_program(&m, stages);
    return AP_OK;
}
