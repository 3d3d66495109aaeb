/* nvToolsExt.h - ranges, of the test shim (cudashim.h): what is opened must be closed. */
#ifndef CUDASHIM_NVTX_H
#define CUDASHIM_NVTX_H

#ifdef __cplusplus
extern "C" {
#endif
int nvtxRangePushA(const char *message);
int nvtxRangePop(void);
void nvtxMarkA(const char *message);
#ifdef __cplusplus
}
#endif
#define nvtxRangePush nvtxRangePushA
#endif
