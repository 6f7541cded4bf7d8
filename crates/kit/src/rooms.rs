//! The rooms of an engine, as [`Engine`](arbor_base::vfs::Engine) calls them.

/// The methods of `impl Engine` that call files which every engine has under the same names.
#[macro_export]
macro_rules! rooms {
    () => {
        fn format_options(&self) -> &'static [$crate::vfs::OptionSpec] {
            options::FORMAT
        }

        fn mount_options(&self) -> &'static [$crate::vfs::OptionSpec] {
            options::MOUNT
        }

        fn check_mount_options(&self, options: &$crate::vfs::Options) -> $crate::vfs::Result<()> {
            options::Mount::parse(options).map(drop)
        }

        fn test_configurations(&self) -> &'static [(&'static str, &'static str)] {
            options::TEST_CONFIGURATIONS
        }

        fn format(
            &self,
            devices: $crate::vfs::Devices,
            options: &$crate::vfs::FormatOptions,
        ) -> $crate::vfs::Result<()> {
            mkfs::format(devices, options)
        }

        fn mount(
            &self,
            devices: $crate::vfs::Devices,
            options: &$crate::vfs::MountOptions,
            clock: ::std::sync::Arc<dyn $crate::vfs::Clock>,
        ) -> $crate::vfs::Result<::std::sync::Arc<dyn $crate::vfs::FileSystem>> {
            Ok($crate::served::Served::serve(mount::mount(devices, options, clock)?))
        }

        fn check(
            &self,
            devices: $crate::vfs::Devices,
            options: &$crate::vfs::CheckOptions,
            progress: $crate::vfs::Progress<'_>,
        ) -> $crate::vfs::Result<$crate::vfs::CheckReport> {
            check::check(devices, options, progress)
        }

        fn search(&self, device: &dyn $crate::device::Device) -> $crate::vfs::Result<bool> {
            check::search(device)
        }

        fn describe(
            &self,
            devices: &$crate::vfs::Devices,
            f: &mut dyn FnMut($crate::vfs::Region),
        ) -> $crate::vfs::Result<()> {
            describe::describe(devices, f)
        }

        fn structures(
            &self,
            devices: &$crate::vfs::Devices,
            f: &mut dyn FnMut($crate::vfs::Structure),
        ) -> $crate::vfs::Result<()> {
            structures::structures(devices, f)
        }

        fn reseal(
            &self,
            device: &dyn $crate::device::Device,
            structure: &$crate::vfs::Structure,
        ) -> $crate::vfs::Result<()> {
            structures::reseal(device, structure)
        }

        fn dump(&self, devices: &$crate::vfs::Devices, what: &[&str]) -> $crate::vfs::Result<serde_json::Value> {
            dump::dump(devices, what)
        }
    };
}
