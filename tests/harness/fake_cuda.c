/* One CUDA device, an H100 by its numbers, that computes nothing. Loaded before CUDA's own libraries, this answers what
 * torch asks to choose kernels for fake tensors, which have a shape, a dtype and a device, but no data. */
#include <cuda_runtime_api.h>
#include <string.h>

cudaError_t cudaGetDeviceCount(int *count) {
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) { return cudaSuccess; }

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
    memset(properties, 0, sizeof *properties);
    strcpy(properties->name, "fake");
    properties->major = 9;
    properties->totalGlobalMem = 80ull << 30;
    properties->multiProcessorCount = 132;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->maxThreadsPerMultiProcessor = 2048;
    properties->regsPerBlock = 65536;
    properties->sharedMemPerBlock = 48 << 10;
    properties->sharedMemPerBlockOptin = 227 << 10;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = *greatest = 0;
    return cudaSuccess;
}

/* The driver: this library also takes the place of libcuda.so.1. */
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    *flags = *active = 0;
    return 0;
}
