/* cudashim_launch.h - launches. A kernel's arguments are copied, as into its parameter space, and it runs later. */
#ifndef CUDASHIM_LAUNCH_H
#define CUDASHIM_LAUNCH_H

#include <memory>
#include <tuple>
#include <utility>

#include "cuda_runtime_api.h"

#define APRT_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                                    \
    cudashim_launch(#kernel, kernel, grid, block, shared_bytes, stream, ##__VA_ARGS__)

/* Pointers among the arguments, so that one into the host's memory is found at the launch. */
struct cudashim_pointers {
    const void *at[64];
    int count, first[64]; /* first: number of the argument */
};

void cudashim_enqueue_kernel(const char *name, const void *function, dim3 grid, dim3 block, size_t shared,
                             cudaStream_t stream, const cudashim_pointers &pointers, std::shared_ptr<void> data,
                             void (*call)(void *));

template <typename T> static inline void cudashim_note(cudashim_pointers &list, int number, const T &value)
{
    if constexpr (std::is_pointer<T>::value && !std::is_function<typename std::remove_pointer<T>::type>::value)
        if (list.count < 64) {
            list.first[list.count] = number;
            list.at[list.count++] = (const void *)value;
        }
    (void)list, (void)number, (void)value;
}

/* A kernel and its arguments. */
template <typename... Parameters> struct cudashim_bound {
    void (*kernel)(Parameters...);
    std::tuple<typename std::decay<Parameters>::type...> values;
};

/* One thread of the kernel. Not seen by the checks: the tuple is the kernel's parameter space. */
template <typename Bound, size_t... I> __attribute__((no_sanitize("thread"), noinline)) void cudashim_call(void *data)
{
    Bound *b = (Bound *)data;
    b->kernel(std::get<I>(b->values)...);
}

template <typename Bound, size_t... I> void (*cudashim_caller(std::index_sequence<I...>))(void *)
{
    return cudashim_call<Bound, I...>;
}

template <typename... Parameters, typename... Arguments>
static inline void cudashim_launch(const char *name, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                                   size_t shared, cudaStream_t stream, Arguments &&...arguments)
{
    typedef cudashim_bound<Parameters...> Bound;
    Bound bound = {kernel, {static_cast<Parameters>(arguments)...}};
    cudashim_pointers pointers = {};
    int number = 0;
    (void)number;
    std::apply([&](const auto &...v) { (cudashim_note(pointers, number++, v), ...); }, bound.values);
    cudashim_enqueue_kernel(name, (const void *)kernel, grid, block, shared, stream, pointers,
                            std::make_shared<Bound>(bound),
                            cudashim_caller<Bound>(std::index_sequence_for<Parameters...>()));
}

#endif
