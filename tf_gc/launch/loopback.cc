// For LD_PRELOAD: keeps a process's TensorFlow server on the loopback
// interface.
//
// TensorFlow listens on all addresses of the machine, and has no setting for
// it. Here what is bound to all addresses at the port that the environment
// variable TF_GC_LOOPBACK_PORT names is bound to 127.0.0.1 alone.

#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <cstring>

namespace {

bool IsOurs(in_port_t port) {
  const char* const ours = std::getenv("TF_GC_LOOPBACK_PORT");
  return ours != nullptr && ntohs(port) == std::atoi(ours);
}

void KeepToLoopback(sockaddr_in* address) {
  if (address->sin_addr.s_addr == htonl(INADDR_ANY)) {
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  }
}

// gRPC's sockets take connections by IPv4, too, as ::ffff:127.0.0.1.
void KeepToLoopback(sockaddr_in6* address) {
  constexpr unsigned char kMapped[16] = {0, 0, 0,    0,    0,   0, 0, 0,
                                         0, 0, 0xff, 0xff, 127, 0, 0, 1};
  if (std::memcmp(&address->sin6_addr, &in6addr_any, sizeof(in6addr_any)) ==
      0) {
    std::memcpy(&address->sin6_addr, kMapped, sizeof(kMapped));
  }
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
    if (IsOurs(ipv4.sin_port)) KeepToLoopback(&ipv4);
    return next(socket, reinterpret_cast<sockaddr*>(&ipv4), sizeof(ipv4));
  }
  if (address != nullptr && address->sa_family == AF_INET6 &&
      size >= sizeof(ipv6)) {
    std::memcpy(&ipv6, address, sizeof(ipv6));
    if (IsOurs(ipv6.sin6_port)) KeepToLoopback(&ipv6);
    return next(socket, reinterpret_cast<sockaddr*>(&ipv6), sizeof(ipv6));
  }
  return next(socket, address, size);
}
