/* cudashim.h - the test shim: CUDA sources compiled by a host compiler (g++ -x c++ -std=c++17 -include cudashim.h).
 *
 * FOR TESTS ONLY. It stands for the CUDA runtime, cuBLASLt, cuDNN and NCCL as far as autopar uses them, runs kernels on
 * the CPU, one thread of a block after the other, and looks for mistakes that a GPU would not report (README.md beside
 * this folder). This header has what the language has: qualifiers, built-in variables, launches, device functions. */
#ifndef CUDASHIM_H
#define CUDASHIM_H

#ifdef __cplusplus
#define APRT_CUDASHIM 1 /* sources with kernels, which are C++ */
#include "cudashim_device.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- for tests ---- */

/* Reports of mistakes end the process, unless a test asks for them to be counted: then a report is one more here, its
 * text is kept, and the offending call or access goes on as well as it can. */
void cudashim_count_reports(int yes);
unsigned cudashim_reports(void);
const char *cudashim_last_report(void);

/* The rank's collectives from number `after` on fail asynchronously (ncclCommGetAsyncError), as when a peer is lost.
 * Negative: it cannot be connected. */
void cudashim_fail_nccl(int rank, long after);
/* The calls of cudaMalloc from number `after` on find no memory; -1: as many as there is. */
void cudashim_fail_malloc(long after);
/* The order of what is not ordered; CUDASHIM_SEED at the start. */
void cudashim_seed(unsigned long long seed);
/* Objects that are alive: memory, streams, events, graphs, handles. What is left at exit is reported as leak. */
long cudashim_live(void);

#ifdef __cplusplus
}
#endif
#endif
