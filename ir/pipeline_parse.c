/* Text -> pipeline. Names are looked up here; whether the parts fit together is ap_pipeline_verify's question. */
#include "ir/local_text.h"
#include "ir/parse.h"
#include "ir/pipeline.h"
#include "ir/text_form.h"

#include <string.h>

static ap_status parse_head(ap_lex *l, ap_pipeline *p)
{
    int64_t ranks, microbatches;
    AP_TRY(ap_lex_expect(l, "@"));
    AP_TRY(ap_lex_name(l, "the name of the pipeline", &p->name, NULL));
    AP_TRY(ap_lex_expect_word(l, "ranks"));
    AP_TRY(ap_lex_range(l, "a number of ranks", 1, AP_PARSE_MAX_RANKS, &ranks));
    AP_TRY(ap_lex_expect_word(l, "microbatches"));
    AP_TRY(ap_lex_range(l, "a number of microbatches", 1, AP_MAX_MICROBATCHES, &microbatches));
    p->nranks = (int32_t)ranks;
    p->microbatches = (int32_t)microbatches;
    while (true) {
        ap_port port;
        bool input = ap_lex_accept_word(l, "input");
        if (!input && !ap_lex_accept_word(l, "output"))
            return AP_OK;
        AP_TRY(ap_port_parse(l, &port));
        if (input)
            ap_vec_push(&p->ctx->arena, &p->inputs, port);
        else
            ap_vec_push(&p->ctx->arena, &p->outputs, port);
    }
}

static uint32_t find_stage(const ap_pipeline *p, ap_name name)
{
    uint32_t s = 0;
    while (s < p->stages.len && p->stages.at[s].name != name)
        s++;
    return s;
}

static ap_status parse_stage(ap_lex *l, ap_pipeline *p)
{
    ap_stage s;
    AP_TRY(ap_lex_expect(l, "@"));
    AP_TRY(ap_lex_name(l, "the name of a stage", &s.name, NULL));
    if (find_stage(p, s.name) < p->stages.len)
        return ap_lex_error(l, "stage @%s is defined twice", ap_name_str(p->ctx, s.name));
    AP_TRY(ap_lex_expect(l, "{"));
    AP_TRY(ap_module_parse_part(l, &s.m));
    if (s.m->funcs.len != 1 || s.m->meshes.len != 1)
        return ap_lex_error(l, "stage @%s has %u functions and %u meshes, not one of each", ap_name_str(p->ctx, s.name),
                            s.m->funcs.len, s.m->meshes.len);
    AP_TRY(ap_lex_expect(l, "}"));
    ap_vec_push(&p->ctx->arena, &p->stages, s);
    return AP_OK;
}

static ap_status parse_stage_name(ap_lex *l, const ap_pipeline *p, uint32_t *out)
{
    ap_name name;
    AP_TRY(ap_lex_expect(l, "@"));
    AP_TRY(ap_lex_name(l, "the name of a stage", &name, NULL));
    *out = find_stage(p, name);
    return *out < p->stages.len ? AP_OK : ap_lex_error(l, "no stage @%s", ap_name_str(p->ctx, name));
}

static ap_status find_ends(ap_lex *l, const ap_pipeline *p, ap_wire *w)
{
    const ap_func_info *from = &p->stages.at[w->from].m->funcs.at[0];
    const ap_module *to = p->stages.at[w->to].m;
    const ap_func_info *f = &to->funcs.at[0];
    while (w->result < from->nresults && !(from->result_slot[w->result] && from->result_name[w->result] == w->slot))
        w->result++;
    while (w->argument < f->narguments &&
           !(f->argument_slot[w->argument] && ap_value_at(to, f->argument[w->argument])->name == w->slot))
        w->argument++;
    bool made = w->result < from->nresults, read = w->argument < f->narguments;
    if (made && read)
        return AP_OK;
    return ap_lex_error(l, "stage @%s %s no slot %%%s", ap_name_str(p->ctx, p->stages.at[made ? w->to : w->from].name),
                        made ? "reads" : "makes", ap_name_str(p->ctx, w->slot));
}

/* "%h @stage0 -> @stage1 depth 2,2" */
static ap_status parse_link(ap_lex *l, ap_pipeline *p)
{
    ap_wire w = {0};
    int64_t depth[2];
    AP_TRY(ap_lex_expect(l, "%"));
    AP_TRY(ap_lex_name(l, "the name of a slot", &w.slot, NULL));
    AP_TRY(parse_stage_name(l, p, &w.from));
    AP_TRY(ap_lex_expect(l, "->"));
    AP_TRY(parse_stage_name(l, p, &w.to));
    AP_TRY(find_ends(l, p, &w));
    AP_TRY(ap_lex_expect_word(l, "depth"));
    AP_TRY(ap_lex_range(l, "a depth", 1, AP_MAX_MICROBATCHES, &depth[0]));
    AP_TRY(ap_lex_expect(l, ","));
    AP_TRY(ap_lex_range(l, "a depth", 1, AP_MAX_MICROBATCHES, &depth[1]));
    w.from_depth = (int32_t)depth[0];
    w.to_depth = (int32_t)depth[1];
    ap_vec_push(&p->ctx->arena, &p->links, w);
    return AP_OK;
}

static ap_status parse_lists(ap_lex *l, ap_pipeline *p)
{
    ap_wiring w = ap_pipeline_wiring(p, &p->ctx->arena);
    for (uint32_t s = 0; s < p->stages.len; s++)
        ap_vec_push(&p->ctx->arena, &p->lists, (ap_list){0});
    return ap_lists_parse(l, &w, p->lists.at);
}

static ap_status parse_parts(ap_lex *l, ap_pipeline *p)
{
    AP_TRY(parse_head(l, p));
    while (ap_lex_accept_word(l, "stage"))
        AP_TRY(parse_stage(l, p));
    while (ap_lex_accept_word(l, "link"))
        AP_TRY(parse_link(l, p));
    const char *word;
    size_t n;
    if (ap_lex_peek_word(l, &word, &n) && n == 4 && memcmp(word, "list", 4) == 0)
        AP_TRY(parse_lists(l, p));
    if (!ap_lex_at_end(l))
        return ap_lex_error(l, "expected input, output, stage, link or list, in this order");
    return p->stages.len ? AP_OK : ap_lex_error(l, "a pipeline without stages");
}

ap_status ap_pipeline_parse(ap_ctx *ctx, const char *name, const char *text, size_t size, ap_pipeline **out)
{
    ap_lex l;
    ap_lex_init(&l, ctx, name, text, size);
    if (ap_lex_accept_word(&l, "pipeline")) {
        *out = ap_pipeline_create(ctx, 0);
        return parse_parts(&l, *out);
    }
    ap_module *m;
    AP_TRY(ap_module_parse(ctx, name, text, size, &m));
    if (m->state < AP_STATE_PLANNED || m->meshes.len != 1 || m->funcs.len != 1)
        return ap_error(ctx, 0, "%s: no pipeline, and no planned module of one mesh and one function", name);
    *out = ap_pipeline_of_module(m, m->funcs.at[0].name);
    return AP_OK;
}
