/* How emitted code is compiled, in one place for the driver and the CMakeLists.txt beside the code.
 *
 * -fno-trapping-math and -ffp-contract=fast decide whether loops become vector code and keep NaN and infinities;
 * -fno-math-errno lets sqrt be an instruction; -fopenmp-simd reads `#pragma omp simd` and needs no library. */
#ifndef AP_BACKEND_C_FLAGS_H
#define AP_BACKEND_C_FLAGS_H

#define AP_C_FLAGS(X)                                                                                                  \
    X("-std=c17")                                                                                                      \
    X("-O3")                                                                                                           \
    X("-fno-trapping-math")                                                                                            \
    X("-fno-math-errno")                                                                                               \
    X("-ffp-contract=fast")                                                                                            \
    X("-fopenmp-simd")                                                                                                 \
    X("-fPIC")

/* In the order of the link line, after libNAME.a. */
#define AP_C_LIBRARIES(X)                                                                                              \
    X("-l:libautopar_rt.a")                                                                                            \
    X("-lcjson")                                                                                                       \
    X("-lpthread")                                                                                                     \
    X("-lm")

/* Before those, for programs with convolutions. */
#define AP_C_CONV_LIBRARIES(X)                                                                                         \
    X("-l:libautopar_rt_conv.a")                                                                                       \
    X("-ldnnl")                                                                                                        \
    X("-lgomp")

/* kernels.cu, by nvcc: machine code for A100 and H100 kin, PTX that GPUs from Turing on, and newer ones than H100, make
 * theirs of. Contractions of a product and a sum are nvcc's default, as they are of the C. */
#define AP_CUDA_FLAGS(X)                                                                                               \
    X("-std=c++17")                                                                                                    \
    X("-O3")                                                                                                           \
    X("-Xcompiler")                                                                                                    \
    X("-fPIC")
#define AP_CUDA_CODE(X)                                                                                                \
    X("-gencode")                                                                                                      \
    X("arch=compute_75,code=compute_75")                                                                               \
    X("-gencode")                                                                                                      \
    X("arch=compute_80,code=sm_80")                                                                                    \
    X("-gencode")                                                                                                      \
    X("arch=compute_90,code=[sm_90,compute_90]")
#define AP_CUDA_ARCHITECTURES "75-virtual;80-real;90" /* the same for CMake */

/* Before AP_C_LIBRARIES, for programs with stages on GPUs. None of them is libcuda, which comes with the driver. */
#define AP_CUDA_LIBRARIES(X)                                                                                           \
    X("-l:libautopar_rt_cuda.a")                                                                                       \
    X("-lcublasLt")                                                                                                    \
    X("-lcudnn")                                                                                                       \
    X("-lnccl")                                                                                                        \
    X("-lcudart")                                                                                                      \
    X("-lstdc++")

#endif
