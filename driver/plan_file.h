/* plan.json: the planned IR as text, the digest of the model, the machine, and the predicted figures. And the
 * object that `plan --json` prints, which has the same content without the IR. */
#ifndef AP_DRIVER_PLAN_FILE_H
#define AP_DRIVER_PLAN_FILE_H

#include "driver/job.h"

#include <cjson/cJSON.h>

typedef struct ap_plan_file {
    ap_pipeline *p; /* state planned */
    char digest[33];
    const char *model; /* name of the model file, without folder */
    ap_cluster cluster;
    ap_pipe_result result;
    ap_opened opened; /* what the model's normal form has to open before it is cut into these stages */
} ap_plan_file;

/* The figures of a plan as one object; `with_time` adds planning_seconds, which differs from run to run. */
cJSON *ap_plan_json(const ap_job *job, bool with_time);
/* What goes into plan.json; same plan, same bytes. */
ap_status ap_plan_file_text(ap_job *job, const char **out);
/* Reads PLAN.json, or DIR/plan.json. */
ap_status ap_plan_file_read(ap_ctx *ctx, const char *path, ap_plan_file *out);

/* Whether `dir` is what `compile` makes: it has plan.txt and a plan.json, of whatever version. */
bool ap_plan_file_is_in(ap_ctx *ctx, const char *dir);

/* plan.txt: header, stages, and of each its mesh, tensors, nodes, resharding steps, memory. */
ap_status ap_plan_report(ap_ctx *ctx, const ap_pipeline *p, const ap_cluster *c, const ap_pipe_result *r,
                         const char *model, const char *digest, const char **out);
/* The same of a job, whose model is named after its file. */
ap_status ap_job_report(ap_job *job, const char **out);

/* The text of a JSON object, which is released; AP_ERR_ENV when memory is out. */
ap_status ap_json_text(ap_ctx *ctx, cJSON *json, const char **out);

/* Devices of the cluster that no stage has. */
int64_t ap_idle_devices(const ap_pipeline *p, const ap_cluster *c);

#endif
