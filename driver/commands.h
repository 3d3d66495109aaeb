/* The commands; each returns the exit code's status and prints its results on standard output. */
#ifndef AP_DRIVER_COMMANDS_H
#define AP_DRIVER_COMMANDS_H

#include "driver/job.h"

ap_status ap_cmd_compile(ap_ctx *ctx, const ap_options *opt);
ap_status ap_cmd_plan(ap_ctx *ctx, const ap_options *opt);
ap_status ap_cmd_run(ap_ctx *ctx, const ap_options *opt);
ap_status ap_cmd_check(ap_ctx *ctx, const ap_options *opt);
ap_status ap_cmd_dump(ap_ctx *ctx, const ap_options *opt);
ap_status ap_cmd_simulate(ap_ctx *ctx, const ap_options *opt);
ap_status ap_cmd_solve(ap_ctx *ctx, const ap_options *opt);
ap_status ap_cmd_profile(ap_ctx *ctx, const ap_options *opt);
ap_status ap_cmd_info(ap_ctx *ctx, const ap_options *opt);
ap_status ap_cmd_ops(ap_ctx *ctx, const ap_options *opt);
ap_status ap_cmd_help(ap_ctx *ctx, const ap_options *opt);

/* The planned pipeline as a graph for Graphviz, on standard output. `whole` draws every repeated layer. */
ap_status ap_dump_dot(ap_ctx *ctx, const ap_pipeline *p, const ap_cluster *c, const char *title, bool whole);

/* Is there what --codegen asks for? */
ap_status ap_codegen_check(ap_ctx *ctx, const ap_options *opt);
/* Are the options that say what is emitted right? For compile, and for run of a model. */
ap_status ap_compile_options(ap_ctx *ctx, const ap_options *opt);
/* A plan for a machine that is not this one is carried out here all the same, so that its results can be seen. */
void ap_note_cluster(const ap_job *job);
/* Everything of `compile` into an existing folder `dir`. */
ap_status ap_compile_into(ap_ctx *ctx, ap_job *job, const char *dir);

#endif
