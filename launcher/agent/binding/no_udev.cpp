// hwloc asks udev for the models of disks, which binding does not need, and Debian has no static libudev.
// These functions find no device.
extern "C" {
struct udev;
struct udev_device;
udev* udev_new() { return nullptr; }
udev* udev_unref(udev*) { return nullptr; }
udev_device* udev_device_new_from_subsystem_sysname(udev*, const char*, const char*) {
  return nullptr;
}
const char* udev_device_get_property_value(udev_device*, const char*) { return nullptr; }
udev_device* udev_device_unref(udev_device*) { return nullptr; }
}
