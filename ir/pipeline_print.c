/* A pipeline as text: ir/pipeline.h shows it, docs/ir.md gives the syntax. */
#include "ir/local_text.h"
#include "ir/pipeline.h"
#include "ir/print.h"
#include "ir/text_form.h"

#include <inttypes.h>

static void print_stage(const ap_pipeline *p, const ap_stage *s, ap_text *out)
{
    ap_text_add(out, "stage @");
    ap_print_name(p->ctx, s->name, out);
    ap_text_add(out, " {\n");
    ap_module_print(s->m, out);
    ap_text_add(out, "}\n");
}

static void print_stage_name(const ap_pipeline *p, uint32_t stage, ap_text *out)
{
    ap_text_add(out, " @");
    if (stage < p->stages.len)
        ap_print_name(p->ctx, p->stages.at[stage].name, out);
    else
        ap_text_add(out, "?");
}

static void print_link(const ap_pipeline *p, const ap_wire *w, ap_text *out)
{
    ap_text_add(out, "link %");
    ap_print_name(p->ctx, w->slot, out);
    print_stage_name(p, w->from, out);
    ap_text_add(out, " ->");
    print_stage_name(p, w->to, out);
    ap_text_addf(out, " depth %" PRId32 ",%" PRId32 "\n", w->from_depth, w->to_depth);
}

void ap_pipeline_print(const ap_pipeline *p, ap_text *out)
{
    if (ap_pipeline_is_plain(p)) {
        ap_module_print(p->stages.at[0].m, out);
        return;
    }
    ap_text_add(out, "pipeline @");
    ap_print_name(p->ctx, p->name, out);
    ap_text_addf(out, " ranks %" PRId32 " microbatches %" PRId32 "\n", p->nranks, p->microbatches);
    ap_ports_print(p->ctx, p->inputs.len, p->inputs.at, p->outputs.len, p->outputs.at, out);
    for (uint32_t i = 0; i < p->stages.len; i++)
        print_stage(p, &p->stages.at[i], out);
    for (uint32_t i = 0; i < p->links.len; i++)
        print_link(p, &p->links.at[i], out);
    if (p->lists.len == p->stages.len) {
        ap_wiring w = ap_pipeline_wiring(p, &p->ctx->scratch);
        ap_lists_print(&w, p->lists.at, out);
    }
}
