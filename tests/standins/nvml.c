/* Stands in for NVIDIA's management library. NVML_GPUS says what there is: for each GPU, with
 * commas, what its NVLinks go to: the number of a GPU, s a switch, - nothing as the link is not
 * active. As in "11-,00s". Buses are 16 + the number of the GPU. NVML_LEVEL is what two of them
 * have in common. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  char busIdLegacy[16];
  unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
  char busId[32];
} PciInfo;

enum { kOk = 0, kInvalid = 2, kUnsupported = 3, kNotFound = 6, kFailed = 999 };

static int isOpen = 0;
static int handles[64];

static const char* linksOf(long gpu) {
  const char* at = getenv("NVML_GPUS");
  for (; gpu > 0; --gpu) {
    at = strchr(at, ',');
    if (at == NULL) return NULL;
    ++at;
  }
  return at;
}
static int linkOf(const int* device, unsigned link) {
  const char* links = linksOf(device - handles);
  for (unsigned i = 0; i <= link; ++i) {
    if (links[i] == ',' || links[i] == 0) return 0;
  }
  return links[link];
}
static void place(PciInfo* info, unsigned gpu) {
  memset(info, 0, sizeof *info);
  info->domain = 7;
  info->bus = 16 + gpu;
  snprintf(info->busId, sizeof info->busId, "%08X:%02X:00.0", info->domain, info->bus);
}

int nvmlInit_v2(void) {
  if (getenv("NVML_FAILS") != NULL) return kFailed;
  isOpen = 1;
  return kOk;
}
int nvmlShutdown(void) {
  isOpen = 0;
  return kOk;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, int** device) {
  const long gpu = strncmp(uuid, "GPU-", 4) == 0 ? atol(uuid + 4) : -1;
  if (!isOpen || gpu < 0 || linksOf(gpu) == NULL) return kNotFound;
  *device = &handles[gpu];
  return kOk;
}
int nvmlDeviceGetPciInfo_v3(int* device, PciInfo* info) {
  place(info, (unsigned)(device - handles));
  return kOk;
}
int nvmlDeviceGetNvLinkState(int* device, unsigned link, unsigned* isActive) {
  const int to = linkOf(device, link);
  if (to == 0) return link < 18 ? kUnsupported : kInvalid;
  *isActive = to != '-';
  return kOk;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(int* device, unsigned link, unsigned* type) {
  *type = linkOf(device, link) == 's' ? 2 : 0;
  return kOk;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(int* device, unsigned link, PciInfo* info) {
  place(info, (unsigned)(linkOf(device, link) - '0'));
  return kOk;
}
#ifndef OLD
int nvmlDeviceGetTopologyCommonAncestor(int* a, int* b, unsigned* level) {
  (void)a, (void)b;
  *level = (unsigned)atoi(getenv("NVML_LEVEL"));
  return kOk;
}
#endif
