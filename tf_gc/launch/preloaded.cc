// For LD_PRELOAD: two things that TensorFlow has no setting for.
//
// It listens on all addresses of the machine. Here what is bound to all
// addresses at the port that the environment variable TF_GC_LOOPBACK_PORT names
// is bound to the one address in TF_GC_LOOPBACK_HOST.
//
// Where a dataset is made of a Python generator, as Keras's fit makes them,
// TensorFlow 2.21 has malloc take every block of 128 KiB and more from the
// system, and give it back when it is free (tensorflow::data::
// ApplyPython311MemoryPatch): each page of each tensor is a page fault, in
// every step. Here what MALLOC_MMAP_THRESHOLD_ in the environment says stays.

#include <arpa/inet.h>
#include <dlfcn.h>
#include <malloc.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace {

bool IsOurs(in_port_t port) {
  const char* const ours = std::getenv("TF_GC_LOOPBACK_PORT");
  return ours != nullptr && ntohs(port) == std::atoi(ours);
}

// An IPv4 address as ::ffff:127.0.0.1, as gRPC's sockets take connections by
// IPv4, too; all addresses if the variable has none.
in6_addr LoopbackAddress() {
  in6_addr address = IN6ADDR_ANY_INIT;
  const char* const host = std::getenv("TF_GC_LOOPBACK_HOST");
  if (host == nullptr || inet_pton(AF_INET6, host, &address) == 1) {
    return address;
  }
  if (inet_pton(AF_INET, host, &address.s6_addr[12]) == 1) {
    address.s6_addr[10] = address.s6_addr[11] = 0xff;
  }
  return address;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int bind(
    int socket, const sockaddr* address, socklen_t size) {
  using Bind = int (*)(int, const sockaddr*, socklen_t);
  static const Bind next = reinterpret_cast<Bind>(dlsym(RTLD_NEXT, "bind"));
  sockaddr_in ipv4;
  sockaddr_in6 ipv6;
  if (address != nullptr && address->sa_family == AF_INET &&
      size >= sizeof(ipv4)) {
    std::memcpy(&ipv4, address, sizeof(ipv4));
    if (ipv4.sin_addr.s_addr == htonl(INADDR_ANY) && IsOurs(ipv4.sin_port)) {
      const in6_addr loopback = LoopbackAddress();
      if (!IN6_IS_ADDR_V4MAPPED(&loopback)) {
        errno = EADDRNOTAVAIL;  // an IPv6 address, for the other socket
        return -1;
      }
      std::memcpy(&ipv4.sin_addr, &loopback.s6_addr[12], sizeof(in_addr));
    }
    return next(socket, reinterpret_cast<sockaddr*>(&ipv4), sizeof(ipv4));
  }
  if (address != nullptr && address->sa_family == AF_INET6 &&
      size >= sizeof(ipv6)) {
    std::memcpy(&ipv6, address, sizeof(ipv6));
    if (IN6_IS_ADDR_UNSPECIFIED(&ipv6.sin6_addr) && IsOurs(ipv6.sin6_port)) {
      ipv6.sin6_addr = LoopbackAddress();
    }
    return next(socket, reinterpret_cast<sockaddr*>(&ipv6), sizeof(ipv6));
  }
  return next(socket, address, size);
}

extern "C" __attribute__((visibility("default"))) int mallopt(int parameter,
                                                              int value) {
  using Mallopt = int (*)(int, int);
  static const Mallopt next =
      reinterpret_cast<Mallopt>(dlsym(RTLD_NEXT, "mallopt"));
  const bool is_kept = parameter == M_MMAP_THRESHOLD &&
                       std::getenv("MALLOC_MMAP_THRESHOLD_") != nullptr;
  return is_kept ? 1 : next(parameter, value);
}
