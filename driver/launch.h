/* Starting the program of a compiled model: its ranks as threads of one process, or as processes of an MPI job. */
#ifndef AP_DRIVER_LAUNCH_H
#define AP_DRIVER_LAUNCH_H

#include "driver/options.h"

/* --launcher and --hosts, before anything is done. */
ap_status ap_launch_check(ap_ctx *ctx, const ap_options *opt);
/* Runs argv (argv[0] is the program, NULL-terminated) and waits. Its failure has been told by it, unless the status is
 * AP_ERR_ENV with a diagnostic. `quiet` sends its standard output to /dev/null. */
ap_status ap_launch(ap_ctx *ctx, const ap_options *opt, const char *const *argv, bool quiet);

#endif
