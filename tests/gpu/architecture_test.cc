// Prints what require_architecture says of the compute capability given as MAJOR MINOR.
#include "cuda/architecture.h"

#include <cstdio>
#include <cstdlib>

int main(int, char** argv) {
  try {
    openjev::cuda::require_architecture("Some GPU", std::atoi(argv[1]), std::atoi(argv[2]));
    std::puts("accepted");
  } catch (const openjev::Error& error) {
    std::printf("%d %s\n", static_cast<int>(error.kind()), error.what());
  }
}
