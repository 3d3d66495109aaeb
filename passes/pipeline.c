/* The passes in the order that the user, a test or a command asks for. */
#include "passes/pass.h"

#include "ir/text_form.h"

#include <string.h>

static const struct {
    const char *name;
    ap_pass_fn *run;
} passes[] = {
    {"fold", ap_pass_fold},   {"slices", ap_pass_slices}, {"refine", ap_pass_refine},     {"views", ap_pass_views},
    {"embed", ap_pass_embed}, {"rows", ap_pass_rows},     {"explicit", ap_pass_explicit},
};

ap_status ap_passes_run(ap_ctx *ctx, ap_module *m, const char *list, const ap_pass_hook *hook)
{
    while (*list) {
        size_t n = strcspn(list, ",");
        ap_pass_fn *run = NULL;
        const char *name = NULL;
        for (size_t i = 0; i < sizeof passes / sizeof *passes; i++)
            if (strlen(passes[i].name) == n && strncmp(passes[i].name, list, n) == 0) {
                run = passes[i].run;
                name = passes[i].name;
            }
        if (!run)
            return ap_fail(ctx, AP_ERR_USAGE, 0, "unknown pass '%.*s'", (int)n, list);
        AP_TRY(run(ctx, m));
        ap_arena_reset(&ctx->scratch);
        if (hook)
            AP_TRY(hook->after(hook->user, ctx, name, m));
        list += n + (list[n] == ',');
    }
    return AP_OK;
}
