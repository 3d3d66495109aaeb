/* ops: which operators of ONNX are understood, from the table of the frontend, and the core operators that they
 * become, from the tables of the IR. Sorted by domain and name, so that two versions can be compared. */
#include "driver/commands.h"

#include "driver/plan_file.h"
#include "frontend/legalise.h"

#include <stdlib.h>
#include <string.h>

/* One operator of ONNX: adjacent opset ranges of several rows are one. */
typedef struct entry {
    const char *domain, *name;
    char opsets[64];
    int until; /* of the last range written; 0: still there */
} entry;

static int compare_rows(const void *a, const void *b)
{
    const ap_onnx_op *x = *(const ap_onnx_op *const *)a, *y = *(const ap_onnx_op *const *)b;
    int c = strcmp(x->domain, y->domain);
    c = c ? c : strcmp(x->name, y->name);
    return c ? c : (x->since > y->since) - (x->since < y->since);
}

/* "7+", "1-12", "1-4, 13+": `since` and `until` of one row more. */
static void add_range(entry *e, bool first, int since, int until)
{
    size_t n = strlen(e->opsets);
    if (!first && e->until == since - 1) { /* goes on where the last one ended */
        n = (size_t)(strrchr(e->opsets, '-') - e->opsets);
        e->opsets[n] = 0;
    } else {
        snprintf(e->opsets + n, sizeof e->opsets - n, "%s%d", first ? "" : ", ", since);
        n = strlen(e->opsets);
    }
    if (until)
        snprintf(e->opsets + n, sizeof e->opsets - n, "-%d", until);
    else
        snprintf(e->opsets + n, sizeof e->opsets - n, "+");
    e->until = until;
}

static uint32_t collect(ap_ctx *ctx, entry **out)
{
    uint32_t n = ap_onnx_op_count(), len = 0;
    const ap_onnx_op **row = AP_NEW_ARRAY(&ctx->scratch, const ap_onnx_op *, n);
    entry *list = AP_NEW_ARRAY(&ctx->scratch, entry, n);
    for (uint32_t i = 0; i < n; i++)
        row[i] = ap_onnx_op_at(i);
    qsort(row, n, sizeof *row, compare_rows);
    for (uint32_t i = 0; i < n; i++) {
        bool first =
            i == 0 || strcmp(row[i]->domain, row[i - 1]->domain) != 0 || strcmp(row[i]->name, row[i - 1]->name) != 0;
        if (first)
            list[len++] =
                (entry){.domain = *row[i]->domain ? row[i]->domain : "ai.onnx", .name = row[i]->name, .opsets = ""};
        add_range(&list[len - 1], first, row[i]->since, row[i]->until);
    }
    *out = list;
    return len;
}

/* What kind of operator a core one is, in words. */
static const char *class_of(const ap_op_info *op)
{
    return op->pointwise    ? "pointwise"
           : op->collective ? "collective"
           : op->step       ? "step without communication"
           : op->planned    ? "change of sharding"
           : op->terminator ? "end of a body"
           : op->has_body   ? "body"
                            : "tensor";
}

static ap_status print_json(ap_ctx *ctx, uint32_t n, const entry *list)
{
    cJSON *o = cJSON_CreateObject(), *onnx = cJSON_AddArrayToObject(o, "onnx"), *core;
    for (uint32_t i = 0; i < n; i++) {
        cJSON *e = cJSON_CreateObject();
        cJSON_AddStringToObject(e, "domain", list[i].domain);
        cJSON_AddStringToObject(e, "name", list[i].name);
        cJSON_AddStringToObject(e, "opsets", list[i].opsets);
        cJSON_AddItemToArray(onnx, e);
    }
    core = cJSON_AddArrayToObject(o, "core");
    for (int op = 0; op < AP_OP_COUNT; op++) {
        cJSON *e = cJSON_CreateObject();
        cJSON_AddStringToObject(e, "name", ap_op_get((ap_op)op)->name);
        cJSON_AddStringToObject(e, "class", class_of(ap_op_get((ap_op)op)));
        cJSON_AddItemToArray(core, e);
    }
    const char *text;
    AP_TRY(ap_json_text(ctx, o, &text));
    printf("%s\n", text);
    return AP_OK;
}

static void print_md(uint32_t n, const entry *list)
{
    printf("# Operators of ONNX\n\n%u operators. An opset range is that of the operator's own domain.\n\n"
           "| Domain | Operator | Opsets |\n| --- | --- | --- |\n",
           n);
    for (uint32_t i = 0; i < n; i++)
        printf("| %s | %s | %s |\n", list[i].domain, list[i].name, list[i].opsets);
    printf("\n# Core operators\n\n%d operators.\n\n| Operator | Class |\n| --- | --- |\n", AP_OP_COUNT);
    for (int op = 0; op < AP_OP_COUNT; op++)
        printf("| %s | %s |\n", ap_op_get((ap_op)op)->name, class_of(ap_op_get((ap_op)op)));
}

static void print_text(uint32_t n, const entry *list)
{
    printf("ONNX: %u operators\n", n);
    for (uint32_t i = 0; i < n; i++)
        printf("  %-16s %-28s %s\n", list[i].domain, list[i].name, list[i].opsets);
    printf("core: %d operators\n", AP_OP_COUNT);
    for (int op = 0; op < AP_OP_COUNT; op++)
        printf("  %-16s %s\n", ap_op_get((ap_op)op)->name, class_of(ap_op_get((ap_op)op)));
}

ap_status ap_cmd_ops(ap_ctx *ctx, const ap_options *opt)
{
    const char *format = opt->format ? opt->format : "text";
    if (strcmp(format, "text") != 0 && strcmp(format, "md") != 0)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "--format: text or md, not '%s'", format);
    entry *list;
    uint32_t n = collect(ctx, &list);
    if (opt->json)
        return print_json(ctx, n, list);
    if (strcmp(format, "md") == 0)
        print_md(n, list);
    else
        print_text(n, list);
    return AP_OK;
}
