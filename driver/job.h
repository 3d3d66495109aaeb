/* One model on its way: what compile, plan, run, dump and info have in common. */
#ifndef AP_DRIVER_JOB_H
#define AP_DRIVER_JOB_H

#include "backend/backend.h"
#include "driver/planning.h"
#include "ir/pipeline.h"
#include "passes/check.h"
#include "passes/pipe/build.h"
#include "passes/pipe/open.h"

typedef struct ap_job {
    ap_ctx *ctx; /* borrowed */
    const ap_options *opt;
    ap_module *m;     /* until it is planned */
    ap_pipeline *p;   /* from then on */
    ap_opened opened; /* composites that stages had to cut */
    ap_import_info info;
    ap_plan_request request;
    ap_pipe_result result;   /* after ap_job_plan */
    char digest[33];         /* of the model file */
    const ap_target *target; /* after ap_job_lower: of each stage; NULL: processors */
    bool checking;           /* --check-passes */
    ap_check check;
} ap_job;

/* Reads the model: state imported. `weights_absent` as in the frontend. */
ap_status ap_job_import(ap_ctx *ctx, const ap_options *opt, bool weights_absent, ap_job *out);
/* imported -> normal */
ap_status ap_job_normalise(ap_job *job);
/* normal -> planned, by the planner or from --plan; evaluates the plan anew and compares. */
ap_status ap_job_plan(ap_job *job);
/* planned -> explicit -> local */
ap_status ap_job_lower(ap_job *job, const char *name, ap_program **out);
void ap_job_deinit(ap_job *job);

/* NAME of the generated program: --name, or the file name made an identifier. */
ap_status ap_job_name(ap_ctx *ctx, const ap_options *opt, const char **out);
/* 128-bit digest of a file, in hexadecimal. */
ap_status ap_file_digest(ap_ctx *ctx, const char *path, char out[33]);

#endif
