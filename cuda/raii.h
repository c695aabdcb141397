// Owners of CUDA resources. Each frees what it holds; none can be copied.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#include "cuda/check.h"

namespace openjev::cuda {

// A handle that `Destroy` ends. Errors of destruction are ignored: nobody could act on them.
template <class T, auto Destroy>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T value) : value_(value) {}
  Handle(Handle&& other) noexcept : value_(std::exchange(other.value_, T{})) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (value_ != T{}) static_cast<void>(Destroy(value_));
  }
  T get() const { return value_; }
  explicit operator bool() const { return value_ != T{}; }

 private:
  T value_{};
};

using Stream = Handle<cudaStream_t, cudaStreamDestroy>;
using Event = Handle<cudaEvent_t, cudaEventDestroy>;
using Graph = Handle<cudaGraph_t, cudaGraphDestroy>;
using GraphExec = Handle<cudaGraphExec_t, cudaGraphExecDestroy>;

inline Stream make_stream() {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "create a stream");
  return Stream(stream);
}

inline Event make_event(unsigned flags = cudaEventDisableTiming) {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, flags), "create an event");
  return Event(event);
}

// Bytes of device or pinned host memory.
template <auto Free>
class Memory {
 public:
  Memory() = default;
  Memory(void* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
  std::size_t bytes() const { return bytes_; }
  void* data() const { return data_.get(); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_.get());
  }

 private:
  Handle<void*, Free> data_;
  std::size_t bytes_ = 0;
};

using DeviceMemoryBlock = Memory<cudaFree>;
using PinnedMemoryBlock = Memory<cudaFreeHost>;

// Throws kOutOfMemory with the bytes asked for and the bytes free.
inline DeviceMemoryBlock allocate_device(std::size_t bytes) {
  void* data = nullptr;
  const std::size_t size = bytes == 0 ? 1 : bytes;
  if (const cudaError_t status = cudaMalloc(&data, size); status != cudaSuccess) {
    cudaGetLastError();
    std::size_t free = 0, total = 0;
    static_cast<void>(cudaMemGetInfo(&free, &total));
    if (status == cudaErrorMemoryAllocation) {
      fail(ErrorKind::kOutOfMemory, "device memory: ", size, " bytes could not be allocated; ",
           free, " of ", total, " are free");
    }
    check_cuda(status, "allocate device memory");
  }
  return {data, size};
}

inline PinnedMemoryBlock allocate_pinned(std::size_t bytes) {
  void* data = nullptr;
  const std::size_t size = bytes == 0 ? 1 : bytes;
  check_cuda(cudaHostAlloc(&data, size, cudaHostAllocDefault), "allocate pinned host memory");
  return {data, size};
}

}  // namespace openjev::cuda
