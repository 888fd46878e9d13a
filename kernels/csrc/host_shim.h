// Just enough of CUDA for a host compiler to run the kernels of history_cuda.cu, serially.
//
// The kernels use no barrier and no shared memory, so running one thread after another, block after
// block, computes what the GPU would. For tests only.

#pragma once

#define __global__
#define __device__
#define __forceinline__ inline

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

inline dim3 blockIdx, threadIdx, blockDim, gridDim;

using cudaError_t = int;
inline int cudaGetLastError() { return 0; }
inline const char* cudaGetErrorString(cudaError_t) { return "no error"; }

inline float atomicAdd(float* address, float value) {
  const float old = *address;
  *address = old + value;
  return old;
}

using Float16 = _Float16;
inline float to_acc(Float16 x) { return static_cast<float>(x); }

template <class Kernel, class... Args>
void run_on_host(Kernel* kernel, dim3 grid, dim3 block, Args... args) {
  gridDim = grid;
  blockDim = block;
  for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x)
    for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y)
      for (threadIdx.x = 0; threadIdx.x < block.x; ++threadIdx.x)
        for (threadIdx.y = 0; threadIdx.y < block.y; ++threadIdx.y) kernel(args...);
}

#define REMASK_LAUNCH(kernel, grid, block, stream, ...) \
  (static_cast<void>(stream), run_on_host(kernel, grid, block, __VA_ARGS__))
