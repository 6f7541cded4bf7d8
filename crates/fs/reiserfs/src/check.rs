//! stub
use arbor_base::device::Device;
use arbor_base::vfs::*;
pub(crate) fn issues() -> Vec<&'static str> {
    Vec::new()
}
pub(crate) fn search(d: &dyn Device) -> Result<bool> {
    Ok(crate::superblock::read(d, 0)?.is_some())
}
pub(crate) fn check_path(_d: Devices, _p: &[u8]) -> Result<CheckReport> {
    Ok(CheckReport::default())
}
pub(crate) fn check(_d: Devices, _o: &CheckOptions, _p: Progress<'_>) -> Result<CheckReport> {
    Ok(CheckReport::default())
}
