/* driver_types.h - of the test shim, see cudashim.h: all of it is in cuda_runtime.h. */
#include "cuda_runtime.h"
