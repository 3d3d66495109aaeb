/* The command line: one table of options, which parsing, help and completion read. */
#ifndef AP_DRIVER_OPTIONS_H
#define AP_DRIVER_OPTIONS_H

#include "frontend/frontend.h"

typedef enum ap_command {
    AP_CMD_COMPILE,
    AP_CMD_PLAN,
    AP_CMD_RUN,
    AP_CMD_CHECK,
    AP_CMD_DUMP,
    AP_CMD_SIMULATE,
    AP_CMD_SOLVE,
    AP_CMD_PROFILE,
    AP_CMD_INFO,
    AP_CMD_OPS,
    AP_CMD_HELP,
    AP_CMD_COUNT
} ap_command;

typedef struct ap_option_list {
    AP_VEC(const char *) item;
} ap_option_list;

typedef struct ap_options {
    ap_command command;
    const char *program; /* argv[0] */
    const char *subject; /* MODEL.onnx, DIR, PLAN.json or PROBLEM.json; help: a command or NULL */
    const char *output;  /* -o */
    const char *devices, *cluster, *mesh, *stages, *microbatches, *objective, *memory, *pin, *plan, *split, *time_limit,
        *budget, *threads, *timeout, *dump_problem;
    const char *shapes_from, *batch, *batch_dim;
    ap_option_list dim;
    const char *target, *codegen, *march, *name, *weights;
    const char *data, *rtol, *atol;
    const char *format, *state, *stage, *tables;
    ap_option_list input;
    const char *output_dir, *repeat, *trace, *launcher, *hosts;
    bool emit_only, force, json, quick, quiet, profile, check_passes, help, version;
    int verbose;
} ap_options;

/* AP_ERR_USAGE with a diagnostic for what is wrong. */
ap_status ap_options_parse(ap_ctx *ctx, int argc, char **argv, ap_options *out);

const char *ap_command_str(ap_command c);
/* Help of one command, or of all when `command` is AP_CMD_COUNT. */
void ap_help_print(FILE *f, ap_command command);

/* A row of the table of options, for manual and completion. */
typedef struct ap_option_text {
    const char *name;
    char letter;          /* 0: none */
    const char *argument; /* NULL for flags */
    const char *help;     /* NULL: not shown to users */
    uint32_t commands;    /* bit per command */
} ap_option_text;
bool ap_option_text_at(uint32_t i, ap_option_text *out);
const char *ap_command_subject(ap_command c); /* "" when it takes none */
const char *ap_command_help(ap_command c);

/* Values of options; each reports what does not parse. */
ap_status ap_option_int(ap_ctx *ctx, const char *option, const char *text, int64_t lo, int64_t hi, int64_t *out);
ap_status ap_option_bytes(ap_ctx *ctx, const char *option, const char *text, int64_t *out); /* 16GB, 512MiB, 100000 */
ap_status ap_option_seconds(ap_ctx *ctx, const char *option, const char *text, double *out);

#endif
