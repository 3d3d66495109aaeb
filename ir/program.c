/* Programs: small questions about them, and their text. */
#include "ir/program.h"

#include "ir/local_text.h"
#include "ir/parse.h"
#include "ir/print.h"

#include <inttypes.h>

ap_program *ap_program_of_local(ap_local *p)
{
    ap_arena *arena = &p->ctx->arena;
    ap_program *g = AP_NEW(arena, ap_program);
    ap_list list = {0};
    *g = (ap_program){.ctx = p->ctx, .name = p->name, .nranks = p->nranks, .microbatches = ap_local_microbatches(p)};
    for (uint32_t i = 0; i < p->inputs.len; i++)
        ap_vec_push(arena, &g->inputs, p->inputs.at[i]);
    for (uint32_t i = 0; i < p->outputs.len; i++)
        ap_vec_push(arena, &g->outputs, p->outputs.at[i]);
    ap_vec_push(arena, &g->stages, p);
    ap_vec_push(arena, &list.acts, (ap_act){.kind = AP_ACT_LOOP, .turns = g->microbatches, .body = 1});
    ap_vec_push(arena, &list.acts, (ap_act){.kind = AP_ACT_RUN});
    ap_vec_push(arena, &g->lists, list);
    return g;
}

int64_t ap_program_arena_bytes(const ap_program *p, uint32_t stage)
{
    int64_t bytes = p->stages.at[stage]->arena_bytes;
    for (uint32_t i = 0; i < p->channels.len; i++) {
        const ap_channel *c = &p->channels.at[i];
        if (c->src_stage == stage)
            bytes = ap_max_i64(bytes, ap_sat_add(c->src_at, ap_sat_mul(c->src_bytes, c->src_depth)));
        if (c->dst_stage == stage)
            bytes = ap_max_i64(bytes, ap_sat_add(c->dst_at, ap_sat_mul(c->dst_bytes, c->dst_depth)));
    }
    return bytes;
}

uint32_t ap_program_port(const ap_program *p, uint32_t stage, bool output, uint32_t port)
{
    const ap_local *l = p->stages.at[stage];
    const ap_port *of = output ? &l->outputs.at[port] : &l->inputs.at[port];
    uint32_t n = output ? p->outputs.len : p->inputs.len;
    const ap_port *all = output ? p->outputs.at : p->inputs.at;
    if (p->stages.len == 1)
        return !of->slot && port < n ? port : AP_NONE;
    for (uint32_t i = 0; i < n && !of->slot; i++)
        if (all[i].name == of->name)
            return i;
    return AP_NONE;
}

void ap_program_close_ranks(ap_program *p)
{
    uint32_t n = p->stages.len;
    int32_t *first = AP_NEW_ARRAY(&p->ctx->scratch, int32_t, n);
    p->nranks = 0;
    for (uint32_t s = 0; s < n; s++) {
        for (uint32_t t = 0; t < n; t++)
            if (p->stages.at[t]->first_rank < p->stages.at[s]->first_rank)
                first[s] += p->stages.at[t]->nranks;
        p->nranks += p->stages.at[s]->nranks;
    }
    for (uint32_t i = 0; i < p->channels.len; i++) {
        ap_channel *c = &p->channels.at[i];
        for (uint32_t k = 0; k < c->npieces; k++) {
            c->piece[k].src_rank += first[c->src_stage] - p->stages.at[c->src_stage]->first_rank;
            c->piece[k].dst_rank += first[c->dst_stage] - p->stages.at[c->dst_stage]->first_rank;
        }
    }
    for (uint32_t s = 0; s < n; s++)
        p->stages.at[s]->first_rank = first[s];
}

ap_wiring ap_program_wiring(const ap_program *p, ap_arena *arena)
{
    ap_name *stage = AP_NEW_ARRAY(arena, ap_name, p->stages.len);
    ap_wire *wire = AP_NEW_ARRAY(arena, ap_wire, p->channels.len);
    for (uint32_t s = 0; s < p->stages.len; s++)
        stage[s] = p->stages.at[s]->name;
    for (uint32_t i = 0; i < p->channels.len; i++) {
        const ap_channel *c = &p->channels.at[i];
        wire[i] = (ap_wire){.slot = c->name,
                            .from = c->src_stage,
                            .result = c->src_output,
                            .to = c->dst_stage,
                            .argument = c->dst_input,
                            .from_depth = c->src_depth,
                            .to_depth = c->dst_depth};
    }
    return (ap_wiring){.ctx = p->ctx,
                       .microbatches = p->microbatches,
                       .nstages = p->stages.len,
                       .stage = stage,
                       .nwires = p->channels.len,
                       .wire = wire};
}

/* ---- print ---- */

static void print_piece(const ap_piece *x, ap_text *out)
{
    ap_text_addf(out, "  piece %" PRId32 " -> %" PRId32 " box ", x->src_rank, x->dst_rank);
    ap_local_print_list(out, x->ndims, x->extent);
    ap_text_addf(out, " from %" PRId64, x->src_offset);
    ap_local_print_list(out, x->ndims, x->src_stride);
    ap_text_addf(out, " to %" PRId64, x->dst_offset);
    ap_local_print_list(out, x->ndims, x->dst_stride);
    ap_text_add(out, "\n");
}

static void print_end(const ap_program *p, uint32_t stage, const char *port, uint32_t index, int64_t at, int64_t bytes,
                      int32_t depth, ap_text *out)
{
    ap_text_add(out, "@");
    ap_print_name(p->ctx, p->stages.at[stage]->name, out);
    ap_text_addf(out, " %s %" PRIu32 " at %" PRId64 " bytes %" PRId64 " depth %" PRId32, port, index, at, bytes, depth);
}

static void print_channel(const ap_program *p, const ap_channel *c, ap_text *out)
{
    ap_text_add(out, "channel %");
    ap_print_name(p->ctx, c->name, out);
    ap_text_addf(out, " %s ", ap_dtype_str(c->dtype));
    print_end(p, c->src_stage, "output", c->src_output, c->src_at, c->src_bytes, c->src_depth, out);
    ap_text_add(out, " -> ");
    print_end(p, c->dst_stage, "input", c->dst_input, c->dst_at, c->dst_bytes, c->dst_depth, out);
    ap_text_add(out, c->padded ? " padded {\n" : " {\n");
    for (uint32_t i = 0; i < c->npieces; i++)
        print_piece(&c->piece[i], out);
    ap_text_add(out, "}\n");
}

static bool same_ports(uint32_t n, const ap_port *a, uint32_t m, const ap_port *b)
{
    bool same = n == m;
    for (uint32_t i = 0; same && i < n; i++) {
        same = a[i].name == b[i].name && a[i].dtype == b[i].dtype && a[i].rank == b[i].rank && !b[i].slot;
        for (int d = 0; same && d < a[i].rank; d++)
            same = a[i].dim[d] == b[i].dim[d];
    }
    return same;
}

/* What ap_program_of_local makes of its stage. */
static bool is_plain(const ap_program *p)
{
    if (p->stages.len != 1 || p->channels.len || p->lists.len != 1)
        return false;
    const ap_local *l = p->stages.at[0];
    const ap_list *list = &p->lists.at[0];
    return l->name == p->name && l->nranks == p->nranks && l->first_rank == 0 &&
           ap_local_microbatches(l) == p->microbatches && list->acts.len == 2 && list->acts.at[0].kind == AP_ACT_LOOP &&
           list->acts.at[0].turns == p->microbatches && list->acts.at[1].kind == AP_ACT_RUN &&
           !list->acts.at[1].shift && same_ports(p->inputs.len, p->inputs.at, l->inputs.len, l->inputs.at) &&
           same_ports(p->outputs.len, p->outputs.at, l->outputs.len, l->outputs.at);
}

void ap_program_print(const ap_program *p, ap_text *out)
{
    if (is_plain(p)) {
        ap_local_print(p->stages.at[0], out);
        return;
    }
    ap_text_add(out, "program @");
    ap_print_name(p->ctx, p->name, out);
    ap_text_addf(out, " ranks %" PRId32 " microbatches %" PRId32 "\n", p->nranks, p->microbatches);
    ap_ports_print(p->ctx, p->inputs.len, p->inputs.at, p->outputs.len, p->outputs.at, out);
    for (uint32_t s = 0; s < p->stages.len; s++) {
        ap_text_add(out, "stage {\n");
        ap_local_print(p->stages.at[s], out);
        ap_text_add(out, "}\n");
    }
    for (uint32_t i = 0; i < p->channels.len; i++)
        print_channel(p, &p->channels.at[i], out);
    ap_wiring w = ap_program_wiring(p, &p->ctx->scratch);
    ap_lists_print(&w, p->lists.at, out);
}

/* ---- parse ---- */

typedef struct parser {
    ap_lex lex;
    ap_program *p;
} parser;

static ap_status parse_rank(parser *r, int32_t *out)
{
    int64_t n;
    AP_TRY(ap_lex_range(&r->lex, "a rank", 0, AP_LOCAL_MAX_RANKS - 1, &n));
    *out = (int32_t)n;
    return AP_OK;
}

static ap_status parse_box_end(parser *r, const char *word, uint8_t ndims, int64_t *offset, int64_t *stride)
{
    uint8_t n;
    AP_TRY(ap_lex_expect_word(&r->lex, word));
    AP_TRY(ap_lex_i64(&r->lex, "an offset", offset));
    AP_TRY(ap_local_parse_list(&r->lex, "strides", AP_MAX_LOOPS, stride, &n));
    return n == ndims ? AP_OK : ap_lex_error(&r->lex, "%d strides for %d dimensions", n, ndims);
}

/* After `piece`. */
static ap_status parse_piece(parser *r, ap_piece *x)
{
    *x = (ap_piece){0};
    AP_TRY(parse_rank(r, &x->src_rank));
    AP_TRY(ap_lex_expect(&r->lex, "->"));
    AP_TRY(parse_rank(r, &x->dst_rank));
    AP_TRY(ap_lex_expect_word(&r->lex, "box"));
    AP_TRY(ap_local_parse_list(&r->lex, "a box", AP_MAX_LOOPS, x->extent, &x->ndims));
    AP_TRY(parse_box_end(r, "from", x->ndims, &x->src_offset, x->src_stride));
    return parse_box_end(r, "to", x->ndims, &x->dst_offset, x->dst_stride);
}

static ap_status parse_end(parser *r, const char *port, uint32_t *stage, uint32_t *index, int64_t *at, int64_t *bytes,
                           int32_t *depth)
{
    ap_lex *l = &r->lex;
    ap_name name;
    int64_t n;
    AP_TRY(ap_lex_expect(l, "@"));
    AP_TRY(ap_lex_name(l, "the name of a stage", &name, NULL));
    for (*stage = 0; *stage < r->p->stages.len && r->p->stages.at[*stage]->name != name;)
        ++*stage;
    if (*stage == r->p->stages.len)
        return ap_lex_error(l, "no stage @%s", ap_name_str(l->ctx, name));
    AP_TRY(ap_lex_expect_word(l, port));
    AP_TRY(ap_lex_range(l, "a port", 0, UINT32_MAX - 1, &n));
    *index = (uint32_t)n;
    AP_TRY(ap_lex_expect_word(l, "at"));
    AP_TRY(ap_lex_range(l, "a byte", 0, INT64_MAX, at));
    AP_TRY(ap_lex_expect_word(l, "bytes"));
    AP_TRY(ap_lex_range(l, "bytes", 0, INT64_MAX, bytes));
    AP_TRY(ap_lex_expect_word(l, "depth"));
    AP_TRY(ap_lex_range(l, "a depth", 1, AP_MAX_MICROBATCHES, &n));
    *depth = (int32_t)n;
    return AP_OK;
}

/* After `channel`. */
static ap_status parse_channel(parser *r)
{
    ap_lex *l = &r->lex;
    ap_channel c = {0};
    AP_VEC(ap_piece) pieces = {0};
    AP_TRY(ap_lex_expect(l, "%"));
    AP_TRY(ap_lex_name(l, "the name of a slot", &c.name, NULL));
    AP_TRY(ap_parse_dtype(l, &c.dtype));
    AP_TRY(parse_end(r, "output", &c.src_stage, &c.src_output, &c.src_at, &c.src_bytes, &c.src_depth));
    AP_TRY(ap_lex_expect(l, "->"));
    AP_TRY(parse_end(r, "input", &c.dst_stage, &c.dst_input, &c.dst_at, &c.dst_bytes, &c.dst_depth));
    c.padded = ap_lex_accept_word(l, "padded");
    AP_TRY(ap_lex_expect(l, "{"));
    while (!ap_lex_accept(l, "}")) {
        ap_piece x;
        AP_TRY(ap_lex_expect_word(l, "piece"));
        AP_TRY(parse_piece(r, &x));
        ap_vec_push(&l->ctx->arena, &pieces, x);
    }
    c.npieces = pieces.len;
    c.piece = pieces.at;
    ap_vec_push(&l->ctx->arena, &r->p->channels, c);
    return AP_OK;
}

static ap_status parse_stage(parser *r)
{
    ap_local *stage;
    AP_TRY(ap_lex_expect(&r->lex, "{"));
    AP_TRY(ap_local_parse_lines(&r->lex, &stage));
    for (uint32_t s = 0; s < r->p->stages.len; s++)
        if (r->p->stages.at[s]->name == stage->name)
            return ap_lex_error(&r->lex, "a second stage @%s", ap_name_str(r->p->ctx, stage->name));
    ap_vec_push(&r->p->ctx->arena, &r->p->stages, stage);
    return ap_lex_expect(&r->lex, "}");
}

/* After `program`. */
static ap_status parse_head(parser *r)
{
    int64_t n;
    AP_TRY(ap_lex_expect(&r->lex, "@"));
    AP_TRY(ap_lex_name(&r->lex, "the program's name", &r->p->name, NULL));
    AP_TRY(ap_lex_expect_word(&r->lex, "ranks"));
    AP_TRY(ap_lex_range(&r->lex, "the number of ranks", 1, AP_LOCAL_MAX_RANKS, &n));
    r->p->nranks = (int32_t)n;
    AP_TRY(ap_lex_expect_word(&r->lex, "microbatches"));
    AP_TRY(ap_lex_range(&r->lex, "the number of microbatches", 1, AP_MAX_MICROBATCHES, &n));
    r->p->microbatches = (int32_t)n;
    return AP_OK;
}

static ap_status parse_port(parser *r, bool input)
{
    ap_port port;
    AP_TRY(ap_port_parse(&r->lex, &port));
    if (input)
        ap_vec_push(&r->p->ctx->arena, &r->p->inputs, port);
    else
        ap_vec_push(&r->p->ctx->arena, &r->p->outputs, port);
    return AP_OK;
}

static ap_status parse_lists(parser *r)
{
    ap_wiring w = ap_program_wiring(r->p, &r->p->ctx->arena);
    for (uint32_t s = 0; s < r->p->stages.len; s++)
        ap_vec_push(&r->p->ctx->arena, &r->p->lists, (ap_list){0});
    AP_TRY(ap_lists_parse(&r->lex, &w, r->p->lists.at));
    return ap_lex_at_end(&r->lex) ? AP_OK : ap_lex_error(&r->lex, "expected a list or the end");
}

ap_status ap_program_parse(ap_ctx *ctx, const char *name, const char *text, size_t size, ap_program **out)
{
    parser r = {.p = AP_NEW(&ctx->arena, ap_program)};
    r.p->ctx = ctx;
    ap_lex_init(&r.lex, ctx, name, text, size);
    if (!ap_lex_accept_word(&r.lex, "program")) {
        ap_local *one;
        AP_TRY(ap_local_parse(ctx, name, text, size, &one));
        *out = ap_program_of_local(one);
        return AP_OK;
    }
    AP_TRY(parse_head(&r));
    for (;;) {
        bool input = ap_lex_accept_word(&r.lex, "input");
        if (input || ap_lex_accept_word(&r.lex, "output"))
            AP_TRY(parse_port(&r, input));
        else if (ap_lex_accept_word(&r.lex, "stage"))
            AP_TRY(parse_stage(&r));
        else if (ap_lex_accept_word(&r.lex, "channel"))
            AP_TRY(parse_channel(&r));
        else
            break;
    }
    AP_TRY(parse_lists(&r));
    *out = r.p;
    return AP_OK;
}
