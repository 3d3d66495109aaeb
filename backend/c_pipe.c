/* program.c: how stages meet: instruction lists, channels and their pieces. */
#include "backend/emit.h"

#include <inttypes.h>

/* ---- lists ---- */

/* "k + 1" in a loop, else the microbatch itself. */
static void print_microbatch(ap_text *t, const ap_act *a, bool in_loop)
{
    if (!in_loop)
        ap_text_addf(t, "%" PRId32, a->shift);
    else if (a->shift)
        ap_text_addf(t, "k %c %" PRId32, a->shift < 0 ? '-' : '+', a->shift < 0 ? -a->shift : a->shift);
    else
        ap_text_add(t, "k");
}

static void print_act(const ap_emit *e, ap_text *t, const ap_act *a, bool in_loop)
{
    static const char *const function[AP_ACT_KIND_COUNT] = {"recv", "claim", "stage_run", "free", "send", ""};
    ap_text_addf(t, "%sTRY(aprt_%s(d, ", in_loop ? "        " : "    ", function[a->kind]);
    if (ap_act_has_wire(a->kind)) {
        const ap_channel *c = &e->program->channels.at[a->wire];
        bool sends = ap_act_is_of_sender(a->kind);
        ap_text_addf(t, "%" PRIu32 " /* ", a->wire);
        ap_emit_comment(t, ap_name_str(e->ctx, c->name), false);
        ap_text_add(t, sends ? " to " : " from ");
        ap_emit_comment(t, ap_name_str(e->ctx, e->program->stages.at[sends ? c->dst_stage : c->src_stage]->name),
                        false);
        ap_text_add(t, " */, ");
    }
    print_microbatch(t, a, in_loop);
    ap_text_add(t, "));\n");
}

void ap_emit_list_function(const ap_emit *e, ap_text *t)
{
    const ap_list *list = &e->program->lists.at[e->stage];
    uint32_t end = 0; /* of the loop that we are in */
    bool single = e->program->stages.len == 1 && e->program->microbatches == 1;
    if (single) {
        ap_text_add(t, "\nstatic int list(aprt_device *d)\n{\n    return aprt_stage_run(d, 0);\n}\n");
        return;
    }
    ap_text_add(t, "\n/* All microbatches: the instruction list");
    if (e->program->stages.len > 1) {
        ap_text_add(t, " of stage ");
        ap_emit_comment(t, ap_name_str(e->ctx, e->p->name), false);
    }
    ap_text_addf(t, ". */\nstatic int %slist(aprt_device *d)\n{\n", ap_emit_prefix(e));
    for (uint32_t i = 0; i < list->acts.len; i++) {
        const ap_act *a = &list->acts.at[i];
        if (a->kind == AP_ACT_LOOP) {
            ap_text_addf(t, "    for (int64_t k = 0; k < %" PRId32 "; k++) {\n", a->turns);
            end = i + 1 + a->body;
            continue;
        }
        print_act(e, t, a, i < end);
        if (i + 1 == end)
            ap_text_add(t, "    }\n");
    }
    ap_text_add(t, "    return APRT_OK;\n}\n");
}

/* ---- ports of a stage ---- */

uint32_t ap_emit_channel_of(const ap_emit *e, bool output, uint32_t port)
{
    for (uint32_t i = 0; i < e->program->channels.len; i++) {
        const ap_channel *c = &e->program->channels.at[i];
        if (output ? c->src_stage == e->stage && c->src_output == port
                   : c->dst_stage == e->stage && c->dst_input == port)
            return i;
    }
    return AP_NONE;
}

static void print_numbers(const ap_emit *e, ap_text *t, bool output, const char *name, uint32_t n)
{
    ap_text_addf(t, "static const int32_t %s%s_numbers[] = {", ap_emit_prefix(e), name);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t port = ap_program_port(e->program, e->stage, output, i);
        int64_t number = port != AP_NONE ? (int64_t)port : -1 - (int64_t)ap_emit_channel_of(e, output, i);
        ap_text_addf(t, "%s%" PRId64, i ? ", " : "", number);
    }
    ap_text_add(t, n ? "};\n" : "0};\n");
}

void ap_emit_port_numbers(const ap_emit *e, ap_text *t)
{
    ap_text_add(t,
                e->program->channels.len ? "\n/* Which of the program's each is; below 0: -1 - channel. */\n" : "\n");
    print_numbers(e, t, false, "input", e->p->inputs.len);
    print_numbers(e, t, true, "output", e->p->outputs.len);
}

/* ---- channels ---- */

static void print_piece(ap_text *t, const ap_piece *x)
{
    ap_text_addf(t, "    {%d, %d, %d, ", x->src_rank, x->dst_rank, x->ndims);
    ap_emit_list(t, x->ndims, x->extent);
    ap_text_addf(t, ", %" PRId64 ", ", x->src_offset);
    ap_emit_list(t, x->ndims, x->src_stride);
    ap_text_addf(t, ", %" PRId64 ", ", x->dst_offset);
    ap_emit_list(t, x->ndims, x->dst_stride);
    ap_text_add(t, "},\n");
}

static void print_pieces(const ap_emit *e, ap_text *t, uint32_t number)
{
    const ap_channel *c = &e->program->channels.at[number];
    ap_text_add(t, "\n/* ");
    ap_emit_comment(t, ap_name_str(e->ctx, c->name), false);
    ap_text_add(t, " from ");
    ap_emit_comment(t, ap_name_str(e->ctx, e->program->stages.at[c->src_stage]->name), false);
    ap_text_add(t, " to ");
    ap_emit_comment(t, ap_name_str(e->ctx, e->program->stages.at[c->dst_stage]->name), false);
    ap_text_addf(t,
                 ": ranks, dimensions: extents; offset, strides at the source and at the destination */\n"
                 "static const aprt_piece pieces_%" PRIu32 "[] = {\n",
                 number);
    for (uint32_t i = 0; i < c->npieces; i++)
        print_piece(t, &c->piece[i]);
    ap_text_add(t, c->npieces ? "};\n" : "    {0},\n};\n");
}

void ap_emit_channels(const ap_emit *e, ap_text *t)
{
    if (!e->program->channels.len)
        return;
    for (uint32_t i = 0; i < e->program->channels.len; i++)
        print_pieces(e, t, i);
    ap_text_add(t,
                "\n/* slot, type, stages, output and input of these; where slots begin at both ends, bytes of one, how "
                "many; pieces */\nstatic const aprt_channel channels[] = {\n");
    for (uint32_t i = 0; i < e->program->channels.len; i++) {
        const ap_channel *c = &e->program->channels.at[i];
        ap_text_add(t, "    {");
        ap_emit_string(t, ap_name_str(e->ctx, c->name));
        ap_text_addf(t, ", %s, %u, %u, %u, %u, ", ap_emit_dtype(c->dtype), c->src_stage, c->dst_stage, c->src_output,
                     c->dst_input);
        ap_text_addf(t, "%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 ", %d, %d, %u, pieces_%u},\n", c->src_at,
                     c->dst_at, c->src_bytes, c->dst_bytes, c->src_depth, c->dst_depth, c->npieces, i);
    }
    ap_text_add(t, "};\n");
}

/* ---- predicted times ---- */

static void print_times(ap_text *t, const char *name, uint32_t rows, int64_t columns, const int64_t *ps)
{
    ap_text_addf(t, "static const int64_t %s[] = {\n", name);
    for (uint32_t i = 0; i < rows; i++) {
        ap_text_add(t, "    ");
        for (int64_t k = 0; k < columns; k++)
            ap_text_addf(t, "%" PRId64 ",%s", ps[i * columns + k],
                         k + 1 == columns ? "\n"
                         : k % 8 == 7     ? "\n    "
                                          : " ");
    }
    ap_text_add(t, "};\n");
}

void ap_emit_predicted(const ap_emit *e, ap_text *t)
{
    const ap_program *g = e->program;
    if (g->run_ps) {
        ap_text_add(t, "\n/* Predicted picoseconds: when each stage begins with each microbatch. */\n");
        print_times(t, "run_ps", g->stages.len, g->microbatches, g->run_ps);
    }
    if (g->move_ps && g->channels.len) {
        ap_text_add(t, "\n/* When each channel begins to move a microbatch and has moved it. */\n");
        print_times(t, "move_ps", g->channels.len, 2 * (int64_t)g->microbatches, g->move_ps);
    }
}
