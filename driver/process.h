/* Programs that we start, and where our own parts are installed. */
#ifndef AP_DRIVER_PROCESS_H
#define AP_DRIVER_PROCESS_H

#include "ir/base/ctx.h"

/* Runs argv (NULL-terminated) without a shell and waits; *out_code is its exit code, 128 + signal when killed.
 * `quiet` sends its standard output to /dev/null. AP_ERR_ENV when it cannot be started. */
ap_status ap_process_run(ap_ctx *ctx, const char *const *argv, bool quiet, int *out_code);
/* The same; what it writes goes into these files, NULL: where ours goes. */
ap_status ap_process_run_to(ap_ctx *ctx, const char *const *argv, const char *out, const char *err, int *out_code);

/* include/ and lib/ beside the folder of this program, in the build tree and when installed. */
ap_status ap_find_runtime(ap_ctx *ctx, const char **out_include, const char **out_lib);

/* A fresh folder in $TMPDIR or /tmp. */
ap_status ap_temp_dir(ap_ctx *ctx, const char **out);

#endif
